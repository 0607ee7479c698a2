"""Signatures of captured functions: annotations, defaults and argument binding.

`captured` reads a signature from the source; calls from Python and from captured functions bind their arguments to it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ForwardRef, Self, TypeVar, Union, get_args, get_origin

import numpy as np

from livegrad.frontend.function.array_patterns import Pattern, TensorPattern, TuplePattern
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import MISSING, ArrayType, FrontType, describe
from livegrad.frontend.function.python_source import Source
from livegrad.frontend.function.type_reading import plain_type


@dataclass(frozen=True)
class NoDiff:
    """`no_diff[T]`: a parameter, result or field without a derivative. Type comparison ignores it."""

    type: Any

    def __or__(self, other: Any) -> NoDiff:
        """`no_diff[T] | None` is `no_diff[T | None]`."""
        return NoDiff((ForwardRef(self.type) if isinstance(self.type, str) else self.type) | other)

    def __ror__(self, other: Any) -> NoDiff:
        return self | other

    def __repr__(self) -> str:
        return f"no_diff[{self.type.__name__ if isinstance(self.type, type) else repr(self.type)}]"


@dataclass(frozen=True)
class InOut:
    """`inout[T]`: an array parameter that the function writes."""

    type: Any

    def __repr__(self) -> str:
        return f"inout[{self.type!r}]"


class InOutMarker:
    """`inout[T]` annotates an array parameter that a function writes.

    A call from Python returns the new array and leaves its argument as it was. A call from another captured function
    writes the caller's array, as in Python.

    >>> import livegrad as lg
    >>> def double(a: lg.inout[lg.array[float, "n"]]):
    ...     for i in range(n):
    ...         a[i] *= 2.0
    >>> lg.inout[lg.array[float, "n"]]
    inout[array[float, "n"]]
    """

    def __getitem__(self, annotation: Any) -> InOut:
        return InOut(annotation)

    def __repr__(self) -> str:
        return "inout"


inout = InOutMarker()

SELF: TypeVar = TypeVar("Self")  # type: ignore  # represents `typing.Self`: the type of a method's first parameter


@dataclass(frozen=True)
class OpenAnnotation:
    """A type that contains a type variable, as in `Pair[T]`."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Annotation:
    """A parsed annotation: a type, a type variable, a list, a pattern of arrays, or nothing; with its qualifiers."""

    type: FrontType | None = None
    variable: TypeVar | None = None
    list_element: FrontType | ListPattern | None = None  # list[T]: the length comes from the argument
    pattern: TensorPattern | TuplePattern | None = None  # whole arrays: their shapes come from the argument
    no_diff: bool = False
    inout: bool = False  # the function writes the array

    def expected_for(self, value: Any) -> Pattern | None:
        """The type or pattern that this Python argument is matched against."""
        if self.list_element is not None and isinstance(value, list | tuple):
            return _array_for(self.list_element, value)
        return self.type if self.pattern is None else self.pattern

    def __repr__(self) -> str:
        if self.type is not None:
            text = describe(self.type)
        elif self.variable is not None:
            text = self.variable.__name__
        elif self.pattern is not None:
            text = repr(self.pattern)
        else:
            text = "any" if self.list_element is None else repr(ListPattern(self.list_element))
        text = f"inout[{text}]" if self.inout else text
        return f"no_diff[{text}]" if self.no_diff else text


@dataclass(frozen=True)
class ListPattern:
    """`list[T]` inside another list; its length comes from the argument."""

    element: FrontType | ListPattern

    def __repr__(self) -> str:
        inner = repr(self.element) if isinstance(self.element, ListPattern) else describe(self.element)
        return f"list[{inner}]"


def _element_of_list(value: Any) -> FrontType | ListPattern:
    """The element type of `list[T]`; lists may be nested to any depth."""
    (inner,) = value.__args__
    if getattr(inner, "__origin__", None) is list:
        return ListPattern(_element_of_list(inner))
    return plain_type(inner)


def array_type_for(element: FrontType | ListPattern, argument: FrontType | None) -> ArrayType | None:
    """The list type that an argument has for a parameter `list[element]`; None if it does not match."""
    if not isinstance(argument, ArrayType):
        return None
    if not isinstance(element, ListPattern):
        return ArrayType(element, argument.size)
    inner = array_type_for(element.element, argument.element) if argument.size else _empty_list(element.element)
    return None if inner is None else ArrayType(inner, argument.size)


def _empty_list(element: FrontType | ListPattern) -> ArrayType:
    """The element type of an empty list of lists: an empty list."""
    return ArrayType(_empty_list(element.element) if isinstance(element, ListPattern) else element, 0)


def _array_for(element: FrontType | ListPattern, value: Any) -> ArrayType | None:
    """The list type of a Python list for a parameter `list[element]`; None if its shape does not match."""
    if not isinstance(element, ListPattern):
        return ArrayType(element, len(value))
    if not all(isinstance(item, list | tuple) for item in value):
        return None
    inner = {_array_for(element.element, item) for item in value} or {_empty_list(element.element)}
    inner_element = inner.pop() if len(inner) == 1 else None
    return None if inner_element is None else ArrayType(inner_element, len(value))


def resolve_names(annotation: Any, names: Mapping[str, Any]) -> Any:
    """Evaluates the strings inside an annotation, as in `no_diff["Light"]` or `list["Light"]`."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return resolve_names(eval(annotation, dict(names)), names)
    if isinstance(annotation, NoDiff | InOut):
        return type(annotation)(resolve_names(annotation.type, names))
    if not mentions(annotation, lambda part: isinstance(part, str | ForwardRef)):
        return annotation
    if get_origin(annotation) is Annotated:
        first, *extras = get_args(annotation)
        return Annotated[resolve_names(first, names), *extras]  # type: ignore[return-value]
    inner = [resolve_names(part, names) for part in get_args(annotation)]
    origin: Any = get_origin(annotation)
    return reduce(or_, inner) if origin in (Union, UnionType) else origin[tuple(inner)]


def mentions(annotation: Any, predicate: Callable[[Any], bool]) -> bool:
    """Whether an annotation, or a part of it, satisfies the predicate."""
    if predicate(annotation):
        return True
    if isinstance(annotation, NoDiff | InOut):
        return mentions(annotation.type, predicate)
    origin = get_origin(annotation)
    parts = get_args(annotation)[:1] if origin is Annotated else get_args(annotation)
    return origin in (list, tuple, Annotated, Union, UnionType) and any(mentions(part, predicate) for part in parts)


class InvalidArrayAnnotation(Exception):
    """An invalid annotation of a whole array; the message is the reason."""


def _tuple_element(value: Any) -> Pattern:
    return value if isinstance(value, TensorPattern) else plain_type(value)


def read_annotation(value: Any) -> Annotation:
    """Parses the value of an annotation; raises TypeError if it is not a type.

    What `Annotated` adds, such as `lg.Control`, is for others.
    """
    if get_origin(value) is Annotated:
        return read_annotation(get_args(value)[0])
    if isinstance(value, NoDiff):
        inner = read_annotation(value.type)
        return replace(inner, no_diff=True)
    if isinstance(value, InOut):
        inner = read_annotation(value.type)
        if not isinstance(inner.pattern, TensorPattern):
            raise InvalidArrayAnnotation(
                f"`inout` requires a whole array, and {inner!r} is not one; return the new value instead"
            )
        return replace(inner, inout=True)
    if isinstance(value, TypeVar):
        return Annotation(variable=value)
    if value is Self:
        return Annotation(variable=SELF)
    if mentions(value, lambda part: part is Self or isinstance(part, TypeVar)):
        return Annotation()  # open: the type comes from the argument
    if isinstance(value, TensorPattern):
        return Annotation(pattern=value)
    if getattr(value, "__origin__", None) is tuple and any(isinstance(part, TensorPattern) for part in value.__args__):
        return Annotation(pattern=TuplePattern(tuple(map(_tuple_element, value.__args__))))
    if value is list:
        return Annotation()
    if getattr(value, "__origin__", None) is list:
        return Annotation(list_element=_element_of_list(value))
    if isinstance(value, OpenAnnotation):
        return Annotation()  # open: the type comes from the argument
    if value is Any or value is str or value is Callable or get_origin(value) is Callable:
        return Annotation()  # strings and functions are static arguments
    return Annotation(plain_type(value))


@dataclass(frozen=True)
class Parameter:
    """One parameter."""

    name: str
    annotation: Annotation
    default: Any
    keyword_only: bool
    span: Span


class Signature:
    """The parameters and the result of a captured function."""

    def __init__(self, source: Source, local_names: Mapping[str, Any] | None = None) -> None:
        self.source = source
        self._local_names = local_names or {}  # of the enclosing function
        arguments = source.definition.args
        for kind, extra in (("*", arguments.vararg), ("**", arguments.kwarg)):
            if extra is not None:
                raise FunctionError(
                    "LG102",
                    f"compiled functions do not support `{kind}{extra.arg}`",
                    source.span(extra),
                    help="name each parameter",
                )
        function = source.function
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = function.__defaults__ or ()
        first = len(positional) - len(defaults)
        self.parameters: list[Parameter] = []
        for index, argument in enumerate(positional):
            default = defaults[index - first] if index >= first else MISSING
            self.parameters.append(self._read_parameter(argument, default, False))
        self._positional_only = {argument.arg for argument in arguments.posonlyargs}
        for argument in arguments.kwonlyargs:
            default = (function.__kwdefaults__ or {}).get(argument.arg, MISSING)
            self.parameters.append(self._read_parameter(argument, default, True))
        returns = None if isinstance(source.definition, ast.Lambda) else source.definition.returns
        self.result = Annotation() if returns is None else self._read_annotation(returns, "return")
        if SELF in {self.result.variable, *(parameter.annotation.variable for parameter in self.parameters)}:
            self._bind_self()

    def _bind_self(self) -> None:
        """`Self` is the type of the first parameter."""
        if not self.parameters or self.parameters[0].annotation not in (Annotation(), Annotation(no_diff=True)):
            source = self.source
            what = "`Self` is the type of a method's first parameter, which has no annotation of its own"
            raise FunctionError("LG204", what, source.span(source.definition), help="name the type")
        first = self.parameters[0]
        self.parameters[0] = replace(first, annotation=replace(first.annotation, variable=SELF))

    def _read_parameter(self, argument: ast.arg, default: Any, keyword_only: bool) -> Parameter:
        annotation = Annotation()
        if argument.annotation is not None:
            annotation = self._read_annotation(argument.annotation, argument.arg)
        return Parameter(argument.arg, annotation, default, keyword_only, self.source.span(argument))

    def _read_annotation(self, node: ast.expr, name: str) -> Annotation:
        source = self.source
        expression: ast.expr = node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            expression = ast.parse(node.value, mode="eval").body
        names = {**source.function.__globals__, **self._local_names, **source.closure}
        value = None
        try:
            value = source.function.__annotations__.get(name)
            if value is None or isinstance(value, str):
                value = eval(compile(ast.Expression(expression), source.file, "eval"), names)
            value = resolve_names(value, names)
            return read_annotation(value)
        except FunctionError:
            raise
        except Exception as error:
            raise FunctionError(
                "LG204",
                f"`{ast.unparse(expression)}` is not a type that functions support",
                source.span(node),
                help=f"{error}" if not isinstance(error, TypeError) else _suggest_annotation(value),
            ) from None

    @property
    def is_complete(self) -> bool:
        """Whether every parameter has a concrete type."""
        return all(parameter.annotation.type is not None for parameter in self.parameters)

    def bind(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any] | str:
        """Binds an argument, or the default, to each parameter; returns the reason if the arguments do not match."""
        by_position = [parameter for parameter in self.parameters if not parameter.keyword_only]
        count = len(by_position)
        if len(positional) > count:
            suffix = " by position" if count < len(self.parameters) else ""
            return f"takes {count} argument{'s' * (count != 1)}{suffix}, found {len(positional)}"
        values = {parameter.name: value for parameter, value in zip(by_position, positional, strict=False)}
        for name, value in keywords.items():
            if name not in {parameter.name for parameter in self.parameters}:
                return f"has no parameter `{name}`"
            if name in self._positional_only:
                return f"takes `{name}` by position"
            if name in values:
                return f"has two values for `{name}`"
            values[name] = value
        bound: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name in values:
                bound[parameter.name] = values[parameter.name]
            elif parameter.default is not MISSING:
                bound[parameter.name] = Default(parameter.default)
            else:
                return f"needs a value for `{parameter.name}`"
        return bound

    def sizes_of(self, bound: Mapping[str, Any]) -> dict[str, int]:
        """The values of the named sizes in a call with these arguments."""
        sizes: dict[str, int] = {}
        for parameter in self.parameters:
            pattern, value = parameter.annotation.pattern, bound[parameter.name]
            for part, item in (
                zip(pattern.elements, value, strict=False) if isinstance(pattern, TuplePattern) else [(pattern, value)]
            ):
                if isinstance(part, TensorPattern):
                    pairs = zip(part.sizes, np.shape(item), strict=True)
                    sizes.update({name: size for name, size in pairs if isinstance(name, str)})
        return sizes

    def __str__(self) -> str:
        inside = ", ".join(f"{p.name}: {p.annotation}" for p in self.parameters)
        return f"{self.source.name}({inside})"


def _suggest_annotation(annotation: Any) -> str:
    """Suggests a replacement for an annotation that is not a supported type."""
    if isinstance(annotation, type) and ("__annotations__" in vars(annotation) or hasattr(annotation, "_fields")):
        return f"decorate the class {annotation.__name__} with @lg.differentiable to make it a struct"
    if annotation is dict or get_origin(annotation) is dict:
        return "write a struct: a class with annotated fields, decorated with @lg.differentiable"
    if isinstance(annotation, type) and annotation.__name__ in ("ndarray", "Tensor"):
        return "lg.tensor[float, 2] is a whole array of two dimensions; vec3 and float take arrays point by point"
    return "use float, int, f32, vec3, list[float], lg.tensor[float, 2], a struct, ..."


@dataclass(frozen=True)
class Default:
    """The default value of a parameter, for an argument that was not passed."""

    value: Any
