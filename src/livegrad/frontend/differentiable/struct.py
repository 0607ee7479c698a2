"""The type of a struct: a class with annotated fields, with a synthesised or custom Differential.

`make_struct.py` turns a class into a struct. Instances are ordinary Python objects, which captured functions split into
their fields.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FrameType, FunctionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from livegrad.frontend.differentiable import instances
from livegrad.frontend.differentiable.differentials import TaggedType, count_shared_members, differential_field
from livegrad.frontend.differentiable.members import FieldReference, derivative_member
from livegrad.frontend.differentiable.protocol import has_custom_operation
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import (
    MISSING,
    ArrayType,
    Composite,
    Field,
    FrontType,
    RecordType,
    TupleType,
    describe,
    differential_type,
)
from livegrad.frontend.function.signature import read_annotation, resolve_names
from livegrad.frontend.function.type_reading import plain_type

Bindings = Mapping[TypeVar, Any]


class StructType(RecordType):
    """The type of the instances of a struct class."""

    def __init__(self, cls: type, frame: FrameType | None, bindings: Bindings | None = None) -> None:
        super().__init__(cls.__name__, self._read_fields, lambda **values: cls(**values))
        self.cls = cls
        self._bindings = bindings or {}  # the types that replace the type variables of a generic struct
        self._frame = frame  # kept until the annotations are read, because they may name locals of a function
        self._file = "" if frame is None else frame.f_code.co_filename
        self._lines = [] if frame is None else linecache.getlines(self._file, frame.f_globals)
        self._definition = None if frame is None else _class_definition(cls, self._lines, frame.f_lineno)
        self.span: Span | None = None
        if self._definition is not None:
            self.span = _span(self._file, self._lines, self._definition, cls.__name__)
        self.methods = {
            name: value
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if isinstance(value, FunctionType | CapturedFunction | staticmethod)
            and not _is_generated_method(name)
            and getattr(value, "__module__", None) != instances.__name__
        }
        self.properties = {
            name: value.fget
            for base in reversed(cls.__mro__)
            for name, value in vars(base).items()
            if isinstance(value, property) and isinstance(value.fget, FunctionType | CapturedFunction)
        }

    def __getstate__(self) -> dict[str, Any]:
        _ = self.fields  # reads the annotations, which need a frame that cannot be pickled
        return {**vars(self), "_lines": [], "_definition": None}

    def _read_fields(self) -> list[Field]:
        fields = [self._read_field(name, annotation) for name, annotation in dict(self._annotations()).items()]
        self.__dict__["fields"] = tuple(fields)  # provisional, so that the checks below can read `fields`
        try:
            self._forbid_recursion()
            self._custom_differential = self._read_custom_differential()
            fields = [self._associate_member(field) for field in fields]
        finally:
            del self.__dict__["fields"]
        self._frame = None
        return fields

    def _names_of(self, base: type) -> dict[str, Any]:
        """The names that annotations may use: of the module, the enclosing function, and the class itself."""
        local = self._frame.f_locals if self._frame else {}
        return {**vars(sys.modules.get(base.__module__, sys)), **local, self.cls.__name__: self.cls}

    def _annotations(self) -> Iterator[tuple[str, Any]]:
        for base in reversed(self.cls.__mro__):
            for name, annotation in inspect.get_annotations(base).items():
                yield (
                    name,
                    _substitute_variables(
                        self._evaluate_annotation(name, annotation, self._names_of(base)), self._bindings
                    ),
                )

    def _evaluate_annotation(self, name: str, annotation: Any, names: dict[str, Any]) -> Any:
        try:
            return resolve_names(annotation, names)
        except Exception as error:
            raise FunctionError(
                "LG204", f"`{annotation}` is not a type that functions support", self._field_span(name), help=str(error)
            ) from None

    def _read_field(self, name: str, annotation: Any) -> Field:
        association = None
        if get_origin(annotation) is Annotated:
            annotation, *extras = get_args(annotation)
            association = next((extra.name for extra in extras if isinstance(extra, derivative_member)), None)
        try:
            parsed = read_annotation(annotation)
        except (TypeError, NameError) as error:
            raise FunctionError(
                "LG204",
                f"field `{name}` of {self.name} has a type that functions do not support",
                self._field_span(name),
                help=str(error),
            ) from None
        if parsed.type is None:
            help = f"write {self.name}[float], or with other types" if parsed.variable is not None else None
            raise FunctionError(
                "LG204", f"field `{name}` of {self.name} needs a type", self._field_span(name), help=help
            )
        return Field(name, parsed.type, parsed.no_diff, self._default_of(name), association)

    def _default_of(self, name: str) -> Any:
        default = next((vars(base)[name] for base in self.cls.__mro__ if name in vars(base)), MISSING)
        return MISSING if isinstance(default, FieldReference) else default

    def _field_span(self, name: str) -> Span | None:
        """The source location of a field, or of the class if the field cannot be found."""
        for statement in () if self._definition is None else self._definition.body:
            if isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", None) == name:
                return _span(self._file, self._lines, statement, self.name)
        return self.span

    def _forbid_recursion(self) -> None:
        path = _find_cycle(self, self, [])
        if path is not None:
            chain = " -> ".join([self.name, *path])
            raise FunctionError(
                "LG307",
                f"{self.name} contains itself",
                self._field_span(path[0].split(".")[-1]),
                found=chain,
                help="a value of fixed size cannot hold itself; keep an index instead",
            )

    # --- the Differential ---

    def make_differential(self) -> FrontType | None:
        """The custom Differential of the class, or the synthesised one."""
        fields = self.fields
        custom = self._custom_differential
        if custom is None:
            return super().make_differential()
        self._differential = custom
        if custom is not self:
            for field in fields:
                if not field.no_diff and differential_type(field.type) is not None:
                    self._check_member(custom, field)
            self._forbid_sums(custom)
        return custom

    def _read_custom_differential(self) -> RecordType | None:
        """Reads the Differential that the class defines; a string names a class that is defined later."""
        custom = self.cls.__dict__.get("__livegrad_differential__")
        if custom is None:
            return None
        try:
            differential = plain_type(resolve_names(custom, self._names_of(self.cls)))
        except (TypeError, NameError) as error:
            what = f"the Differential of {self.name} is not a type that functions support"
            raise FunctionError("LG308", what, self.span, help=str(error)) from None
        if not isinstance(differential, RecordType):
            raise FunctionError("LG308", f"the Differential of {self.name} must be a struct", self.span)
        return differential

    def _associate_member(self, field: Field) -> Field:
        """Associates a field with a member of the custom Differential; a field without a member becomes `no_diff`."""
        custom = self._custom_differential
        if field.derivative_member is not None:
            problem = (
                _reason_for_no_member(field) if custom is not None else f"{self.name} does not define a Differential"
            )
            if problem is not None:
                raise FunctionError(
                    "LG308",
                    f"field `{field.name}` of {self.name} cannot have the member `{field.derivative_member}`",
                    self._field_span(field.name),
                    found=problem,
                    help="remove derivative_member",
                )
        elif custom is not None and custom is not self and custom.index_of(field.name) is None:
            self._require_intended(custom, field)
            return replace(field, no_diff=True)
        return field

    def _require_intended(self, differential: RecordType, field: Field) -> None:
        """Raises if a field has no member and a member of its type has no field: a name is probably misspelt."""
        if field.no_diff or (expected := differential_type(field.type)) is None:
            return
        associated = {other.derivative_member or other.name for other in self.__dict__["fields"]}
        if any(member.name not in associated and member.type == expected for member in differential.fields):
            raise FunctionError(
                "LG308",
                f"field `{field.name}` of {self.name} has no member in {differential.name}",
                self._field_span(field.name),
                expected=", ".join(f.name for f in differential.fields),
                help="name it with derivative_member, or mark the field no_diff",
            )

    def _check_member(self, differential: RecordType, field: Field) -> None:
        target = field.derivative_member or field.name
        index = differential.index_of(target)
        if index is None:
            raise FunctionError(
                "LG308",
                f"{differential.name} has no member `{target}`",
                self._field_span(field.name),
                expected=", ".join(f.name for f in differential.fields),
            )
        expected, actual = differential_type(field.type), differential.fields[index].type
        if expected != actual:
            assert expected is not None
            raise FunctionError(
                "LG308",
                f"member `{target}` of {differential.name} does not fit field `{field.name}`",
                self._field_span(field.name),
                expected=describe(expected),
                found=describe(actual),
            )

    def _forbid_sums(self, differential: RecordType) -> None:
        """Raises if fields share a member whose type has a custom sum, because shared members are added as numbers."""
        shared_counts = count_shared_members(self)
        for field in self.fields:
            index = differential_field(self, field)
            if index is not None and shared_counts[index] > 1 and not _is_plain_sum(field.type):
                raise FunctionError(
                    "LG308",
                    f"fields of {self.name} share the member `{differential.fields[index].name}`, "
                    "whose type cannot be added up",
                    self._field_span(field.name),
                    found=describe(field.type),
                    help="give each field its own member",
                )


def _reason_for_no_member(field: Field) -> str | None:
    if field.no_diff:
        return "the field is `no_diff`"
    return None if differential_type(field.type) is not None else f"{describe(field.type)} has no derivative"


def _is_plain_sum(type: FrontType) -> bool:
    """Whether differentials of a type are added as numbers, without a custom sum or a tag."""
    if isinstance(type, TaggedType) or has_custom_operation(type, "dadd"):
        return False
    return all(map(_is_plain_sum, _contained_records(type))) and all(
        _is_plain_sum(field.type) for field in getattr(type, "fields", ()) if differential_type(field.type) is not None
    )


def _is_generated_method(name: str) -> bool:
    return name in (
        "__init__",
        "__repr__",
        "__eq__",
        "__new__",
        "__init_subclass__",
        "__class_getitem__",
        "__post_init__",
    )


def _find_cycle(target: RecordType, current: FrontType, visited: list[Any]) -> list[str] | None:
    """The chain of fields that leads from a type back to the target, or None."""
    if isinstance(current, RecordType):
        if current in visited:
            return None
        for field in current.fields:
            for inner in _contained_records(field.type):
                if inner is target:
                    return [f"{current.name}.{field.name}"]
                chain = _find_cycle(target, inner, [*visited, current])
                if chain is not None:
                    return [f"{current.name}.{field.name}", *chain]
    return None


def _contained_records(type: FrontType) -> list[FrontType]:
    """The records inside the type of a field, through lists and tuples."""
    if isinstance(type, ArrayType):
        return _contained_records(type.element)
    if isinstance(type, TupleType):
        return [inner for element in type.elements for inner in _contained_records(element)]
    element = getattr(type, "element", None)
    return (
        [type]
        if isinstance(type, RecordType)
        else (_contained_records(element) if isinstance(element, Composite) else [])
    )


def _span(file: str, lines: list[str], node: ast.stmt, name: str) -> Span:
    text = lines[node.lineno - 1]
    last = (node.end_col_offset or len(text)) if node.end_lineno == node.lineno else len(text.rstrip())
    return Span(file, node.lineno, node.col_offset + 1, last + 1, text, name)


def _class_definition(cls: type, lines: list[str], line: int) -> ast.ClassDef | None:
    """The syntax tree of the class that is decorated at this line."""
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= line <= (node.end_lineno or node.lineno):
                return node
    return None


def _substitute_variables(annotation: Any, bindings: Bindings) -> Any:
    """Replaces the type variables in an annotation by types."""
    if isinstance(annotation, TypeVar):
        return bindings.get(annotation, annotation)
    inner = getattr(annotation, "__parameters__", ())
    if bindings and inner and not isinstance(annotation, type):
        return annotation[tuple(bindings.get(variable, variable) for variable in inner)]
    return annotation
