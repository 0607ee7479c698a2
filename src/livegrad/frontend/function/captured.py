"""Captured functions: Python functions that run as native code, specialised for the types they are called with.

Describes a captured function: its source, signature, overloads and specialisations. Detects a stale specialisation: one
whose source, or a constant or function that it uses, has changed. `differentiable.plain_function` compiles and runs
captured functions.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType, NoneType
from typing import Any, ForwardRef

import numpy as np

from livegrad.frontend.function.compile_state import Context, Dependencies, FieldsSnapshot
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import NONE, FrontType, RecordType
from livegrad.frontend.function.python_source import Source, capture, remember_exec_source, remember_source, text_of
from livegrad.frontend.function.signature import Signature, mentions
from livegrad.frontend.function.type_reading import plain_type
from livegrad.ir.node import Function, Node
from livegrad.ir.text import print_function
from livegrad.pickling import Reduced, reduce_function


@dataclass(frozen=True)
class Slot:
    """The specialisation of one parameter: a type, or (`static`) a function or another compile-time value."""

    type: FrontType | None
    no_diff: bool = False
    weak: bool = False
    static: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slot):
            return NotImplemented
        a, b = self.static, other.static
        same_static = a is b or (type(a) is type(b) and isinstance(a, str | int | float) and a == b)
        return same_static and (self.type, self.no_diff, self.weak) == (other.type, other.no_diff, other.weak)

    def __hash__(self) -> int:
        return hash((self.type, self.no_diff, self.weak))


@dataclass(eq=False)
class Specialization:
    """A function compiled for one list of slots."""

    owner: CapturedFunction
    slots: tuple[Slot, ...]
    function: Function
    result_type: FrontType
    result_no_diff: bool
    dependencies: Dependencies
    context: Context
    edition: int = 0
    result_weak: bool = False  # the result is a weakly typed number
    updating: Function | None = None  # for compiled callers: returns the result and the new `inout` arrays
    returned_type: FrontType | None = None  # the type of the result that `updating` returns
    returned_inout: str | None = None  # the `inout` parameter whose array is the result

    def require_inouts_returned(self, span: Span) -> None:
        """Raises if the result lacks an `inout` array, for a caller that receives only the result."""
        context = self.context
        returned = context.inouts if context.returned_inouts is None else context.returned_inouts
        lost = [name for name in context.inouts if name not in returned]
        if self.updating is not None and self.returned_type is not NONE and lost:
            name = self.owner.__name__
            raise FunctionError(
                "LG106",
                f"`{name}` writes its `{lost[0]}`, but does not return it: the change would be lost",
                span,
                help=f"return it too: `return ..., {lost[0]}`",
            )

    @property
    def runtime_slots(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.type is not None]

    def is_current(self) -> bool:
        """Whether everything that it was compiled from is unchanged."""
        owner, dependencies = self.owner, self.dependencies
        if self.edition != owner.edition:
            return False
        lookup = owner.source.lookup
        # Hot path of every call: most dependencies are the same immutable objects.
        for name, value in dependencies.names.items():
            current = lookup(name)
            if (current is not value or value.__class__ not in _IMMUTABLE) and not unchanged(current, value):
                return False
        for owner_object, name, value in dependencies.attributes:
            current = getattr(owner_object, name, None)
            if (current is not value or value.__class__ not in _IMMUTABLE) and not unchanged(current, value):
                return False
        return not dependencies.callees or all(is_current() for is_current in dependencies.callees)


_IMMUTABLE = frozenset({FunctionType, BuiltinFunctionType, ModuleType, type, float, int, bool, str, complex, NoneType})


def is_mutable_value(value: Any) -> bool:
    """Whether a Python value can be changed in place: a list, array or struct."""
    value_type = getattr(value, "__livegrad_type__", None)
    is_struct = isinstance(value_type, RecordType) and not isinstance(value, type) and hasattr(value, "copy")
    return is_struct or isinstance(value, list | np.ndarray)


def unchanged(current: Any, snapshot: Any) -> bool:
    """Whether a value outside a function equals its snapshot from compile time."""
    if isinstance(snapshot, FieldsSnapshot):
        if current is not snapshot.instance:
            return False
        names = [field.name for field in current.__livegrad_type__.fields]
        pairs = zip(names, snapshot.fields, strict=True)
        return all(unchanged(getattr(current, name, None), old) for name, old in pairs)
    if current is snapshot and not isinstance(current, list | dict | np.ndarray):
        return True
    if type(current) is not type(snapshot):
        return False
    if isinstance(current, np.ndarray):
        return np.array_equal(current, snapshot, equal_nan=current.dtype.kind in "fc")
    if isinstance(current, list | tuple):
        return len(current) == len(snapshot) and all(map(unchanged, current, snapshot))
    if isinstance(current, dict):
        return current.keys() == snapshot.keys() and all(
            unchanged(value, snapshot[key]) for key, value in current.items()
        )
    if isinstance(current, float):
        return current == snapshot or (current != current and snapshot != snapshot)
    return isinstance(current, bool | int | str | complex | np.generic) and bool(current == snapshot)


class CapturedFunction:
    """A Python function that is compiled on demand. `PlainFunction` and its subclasses compile and run it."""

    differentiable = False
    settings: tuple[str, ...] = ("overloads", "dispatched")  # what a pickled function keeps, besides its source
    __name__: str

    def __init__(self, function: FunctionType) -> None:
        self.python_function = function
        self._specializations: dict[tuple[Slot, ...], Specialization] = {}
        self.overloads: list[CapturedFunction] = [self]
        self._frames = enclosing_frames(function)  # kept until the annotations are read
        self.call_cache: dict[tuple[Any, ...], Any] = {}  # by the kinds of the arguments
        self.direct_calls: tuple[Any, ...] = ()  # most recently used first
        self.dispatched = False  # a method of an interface: its body calls the method of the value's own type
        self.edition = 0  # incremented when a decorator or overload makes the specialisations stale
        self.compile_count = 0  # the number of compiled bodies, which tests of the cost of an edit read
        update_wrapper(self, function, updated=())
        remember_exec_source(function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.python_function.__qualname__}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundFunction(self, instance)

    def __reduce__(self) -> Reduced:
        function, text = self.python_function, text_of(self.source.lines)
        state = {name: getattr(self, name) for name in self.settings}
        return reduce_function(self, _restore, (type(self), function, text), state)

    def dispatch(self) -> None:
        """Turns it into a method of an interface, whose body calls the method of its first argument's own type."""
        self.dispatched = True
        self.__dict__.pop("source", None)

    @cached_property
    def source(self) -> Source:
        python_source = capture(self.python_function)
        return python_source.as_interface_method() if self.dispatched else python_source

    @cached_property
    def signature(self) -> Signature:
        names: dict[str, Any] = {}
        for frame in reversed(self._frames):
            names.update(frame.f_locals)
        signature = Signature(self.source, names)
        self._frames.clear()
        return signature

    def overload(self, function: Callable[..., Any]) -> CapturedFunction:
        """Adds a definition for other parameter types; a call selects the one that matches.

        >>> import livegrad as lg
        >>> names = lg.run_source("def f(x: float): return x / 2.0\\ndef g(x: int): return x // 2")
        >>> f = lg.function(names["f"])
        >>> _ = f.overload(names["g"])
        >>> f(3.0), f(3)
        (1.5, 1)
        """
        added = function if isinstance(function, CapturedFunction) else type(self)(function)  # type: ignore[arg-type]
        self.overloads += [overload for overload in added.overloads if overload not in self.overloads]
        for overload in self.overloads:
            overload.forget_specializations()  # compiled calls may now resolve to another overload
        return self

    # --- running ---

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError

    def choose(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> CapturedFunction:
        """The overload that matches these arguments."""
        raise NotImplementedError

    def make_plain_version(self) -> FunctionType:
        """The function as plain Python, with functions of numbers in place of tensor functions."""
        raise NotImplementedError

    def python(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the source, and the functions that it calls, as plain Python, so that a debugger can step through it."""
        python_calls.depth += 1
        try:
            return self.run_as_python(arguments, keywords)
        finally:
            python_calls.depth -= 1

    def debug(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs like `python`, and checks that no iteration of a parallel loop writes what another one accesses."""
        python_calls.checked += 1
        try:
            return self.python(*arguments, **keywords)
        finally:
            python_calls.checked -= 1

    def run_as_python(self, arguments: tuple[Any, ...], keywords: dict[str, Any], inside: bool = False) -> Any:
        """Runs the matching overload as plain Python, on copies of mutable arguments, because compiled calls copy them.

        With `inside`, the caller also runs as plain Python, and `inout` parameters write its arrays.
        """
        function = self if len(self.overloads) == 1 else self.choose(arguments, keywords)
        version, signature = function.make_plain_version(), function.signature
        shared = [p.annotation.inout and inside for p in signature.parameters] + [False] * len(arguments)
        pairs = zip(arguments, shared, strict=False)
        values = [v if is_shared or not is_mutable_value(v) else v.copy() for v, is_shared in pairs]
        bound = signature.bind(values, keywords)
        if isinstance(bound, str) or not any(p.annotation.pattern for p in signature.parameters):
            return version(*values, **keywords)
        version.__globals__.update(signature.sizes_of(bound))
        result = version(*values, **keywords)
        written = [bound[parameter.name] for parameter in signature.parameters if parameter.annotation.inout]
        if result is not None or not written or inside:
            return result
        return written[0] if len(written) == 1 else tuple(written)

    def transform(self, target: Any, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        """A transform of `target`, which is this function, or a method or derivative of it. `lazily` is the same
        transform for tensor arguments.
        """
        raise NotImplementedError

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        """Implements `lg.grad` and the other transforms for this function."""
        return self.transform(self, name, lazily, **options)

    # --- compiling ---

    def compile_for(self, slots: tuple[Slot, ...]) -> Specialization:
        """Compiles the body for these slots."""
        raise NotImplementedError

    @classmethod
    def capture(cls, function: FunctionType) -> CapturedFunction:
        """Captures a plain Python function that compiled code calls, without making it differentiable."""
        raise NotImplementedError

    def verify(self, context: Context) -> None:
        """Checks the compiled body; subclasses add requirements, such as the derivative flow check."""

    def wrap_call_result(self, result: Node) -> Node:
        """Wraps the result node where another function calls this one; subclasses may override it."""
        return result

    def specialize(self, slots: tuple[Slot, ...]) -> Specialization:
        """The specialisation for these slots: from the cache if it is current, otherwise compiled now."""
        specialization = self._specializations.get(slots)
        if specialization is not None and specialization.is_current():
            return specialization
        self.compile_count += 1
        compiled = self.compile_for(slots)
        compiled.edition = self.edition
        self._specializations[slots] = compiled
        return compiled

    def forget_specializations(self) -> None:
        """Discards the specialisations; the function and its dependents are compiled again when next called."""
        self._specializations.clear()
        self.edition += 1

    def ir(self, *types: Any) -> str:
        """The text of the IR for these parameter types; omitted types come from the signature."""
        return print_function(self.specialization_for(*types).function)

    def specialization_for(self, *types: Any) -> Specialization:
        """The specialisation for these parameter types; omitted types come from the signature."""
        slots = []
        for index, parameter in enumerate(self.signature.parameters):
            annotation = parameter.annotation
            type = plain_type(types[index]) if index < len(types) else annotation.type
            if type is None:
                raise FunctionError(
                    "LG108",
                    f"`{self.__name__}` needs a type for `{parameter.name}`",
                    parameter.span,
                    help="annotate the parameter, or name the types",
                )
            slots.append(Slot(type, annotation.no_diff))
        return self.specialize(tuple(slots))

    def _repr_html_(self) -> str:
        try:
            text = self.ir()
        except FunctionError as error:
            text = str(error)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<pre>{escaped}</pre>"


def _restore(kind: type[CapturedFunction], function: FunctionType, text: str) -> CapturedFunction:
    """A captured function from another process, whose source need not exist here."""
    remember_source(function.__code__.co_filename, text)
    return kind(function)


@dataclass(frozen=True, eq=False, slots=True)  # slots: `functools.wraps` would copy attributes from a `__dict__`
class BoundFunction:
    """A method of an instance, with its first argument bound."""

    function: CapturedFunction
    instance: Any

    @property
    def __name__(self) -> str:  # type: ignore[override]
        return self.function.__name__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(self.instance, *arguments, **keywords)

    def python(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the method's source as plain Python."""
        return self.function.python(self.instance, *arguments, **keywords)

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        """A transform with respect to the method's arguments; the instance is constant."""
        argnums = options.get("argnums")
        if argnums is None:
            return self.function.transform(self, name, lazily, **options)
        shifted = argnums + (argnums >= 0) if isinstance(argnums, int) else tuple(p + (p >= 0) for p in argnums)
        derived = self.function.transform(self.function, name, lazily, **{**options, "argnums": shifted})
        return lambda *arguments, **keywords: derived(self.instance, *arguments, **keywords)


class _PlainCalls(threading.local):
    """The number of active `python` calls in this thread, and the number of those that check parallel loops."""

    depth = 0
    checked = 0


python_calls = _PlainCalls()


def enclosing_frames(function: FunctionType) -> list[FrameType]:
    """The frames of the functions that enclose a nested definition, because its string annotations may name their
    locals. Empty if it has no string annotations.
    """
    annotations = function.__annotations__.values()
    has_strings = any(mentions(value, lambda part: isinstance(part, str | ForwardRef)) for value in annotations)
    if "<locals>" not in function.__qualname__ or not has_strings:
        return []
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is function.__globals__ and frame.f_code.co_name != "<module>":
            frames.append(frame)
        frame = frame.f_back
    return frames
