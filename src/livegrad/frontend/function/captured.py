"""Captured functions: Python functions that run as native code, compiled for the types they are called with.

Describes a captured function: its source, signature, overloads and specialisations. Detects when one of these is stale
because a constant or function that it uses has changed. `differentiable.plain_function` compiles and runs them.
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
from livegrad.frontend.function.python_source import Source, capture, remember_exec_source
from livegrad.frontend.function.signature import Signature, mentions
from livegrad.frontend.function.type_reading import plain_type
from livegrad.ir.node import Function, Node
from livegrad.ir.text import print_function


@dataclass(frozen=True)
class Slot:
    """What one parameter is specialised for: a type, or (`static`) a function or another compile-time value."""

    type: FrontType | None
    no_diff: bool = False
    weak: bool = False
    static: Any = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slot):
            return NotImplemented
        mine, theirs = (s.static for s in (self, other))
        same = mine is theirs or (type(mine) is type(theirs) and isinstance(mine, str | int | float) and mine == theirs)
        return same and (self.type, self.no_diff, self.weak) == (other.type, other.no_diff, other.weak)

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
    result_weak: bool = False  # a number that met nothing with a type of its own
    updating: Function | None = None  # for compiled callers: gives the result and the new `inout` arrays
    returned_type: FrontType | None = None  # what `updating` gives as the result
    returned_inout: str | None = None  # the parameter whose array is the result

    def require_inouts_returned(self, span: Span) -> None:
        """An error if the result lacks an `inout` array, for a call that gets nothing but the result."""
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
        """Whether everything that it was made from is as it was."""
        owner, dependencies = self.owner, self.dependencies
        if self.edition != owner.edition:
            return False
        lookup = owner.source.lookup
        # Every call comes here: functions and numbers around it are mostly the same objects.
        for name, value in dependencies.names.items():
            now = lookup(name)
            if (now is not value or value.__class__ not in _IMMUTABLE) and not unchanged(now, value):
                return False
        for holder, name, value in dependencies.attributes:
            now = getattr(holder, name, None)
            if (now is not value or value.__class__ not in _IMMUTABLE) and not unchanged(now, value):
                return False
        return not dependencies.callees or all(current() for current in dependencies.callees)


_IMMUTABLE = frozenset({FunctionType, BuiltinFunctionType, ModuleType, type, float, int, bool, str, complex, NoneType})


def is_mutable_value(value: Any) -> bool:
    """Whether a Python value could be changed in place: lists, arrays and structs."""
    value_type = getattr(value, "__livegrad_type__", None)
    struct = isinstance(value_type, RecordType) and not isinstance(value, type) and hasattr(value, "copy")
    return struct or isinstance(value, list | np.ndarray)


def unchanged(now: Any, then: Any) -> bool:
    """Whether a value from around a function is what it was."""
    if isinstance(then, FieldsSnapshot):
        if now is not then.instance:
            return False
        names = [field.name for field in now.__livegrad_type__.fields]
        return all(unchanged(getattr(now, name, None), old) for name, old in zip(names, then.fields, strict=True))
    if now is then and not isinstance(now, list | dict | np.ndarray):
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, np.ndarray):
        return np.array_equal(now, then, equal_nan=now.dtype.kind in "fc")
    if isinstance(now, list | tuple):
        return len(now) == len(then) and all(map(unchanged, now, then))
    if isinstance(now, dict):
        return now.keys() == then.keys() and all(unchanged(value, then[key]) for key, value in now.items())
    if isinstance(now, float):
        return now == then or (now != now and then != then)
    return isinstance(now, bool | int | str | complex | np.generic) and bool(now == then)


class CapturedFunction:
    """A Python function that is compiled on demand. Subclasses compile and run it: `PlainFunction` and those below."""

    differentiable = False
    __name__: str

    def __init__(self, function: FunctionType) -> None:
        self.python_function = function
        self._specializations: dict[tuple[Slot, ...], Specialization] = {}
        self.overloads: list[CapturedFunction] = [self]
        self._frames = enclosing_frames(function)  # until the annotations are read
        self.call_cache: dict[tuple[Any, ...], Any] = {}  # by the kinds of their arguments
        self.direct_calls: tuple[Any, ...] = ()  # those that were found last
        self.dispatched = False  # it stands in an interface: its body is that of the value's own type
        self.edition = 0  # how often what it was made from has been changed by decorators
        self.compile_count = 0  # how often a body was compiled: for tests of what an edit costs
        update_wrapper(self, function, updated=())
        remember_exec_source(function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.python_function.__qualname__}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundFunction(self, instance)

    def dispatch(self) -> None:
        """Makes it a method of an interface: its body is that of the method which its first argument has."""
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
        """Adds a definition for other parameter types; a call takes the one that fits.

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
            overload.forget_specializations()  # calls that were compiled before may choose another one now
        return self

    # --- running ---

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        raise NotImplementedError

    def choose(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> CapturedFunction:
        """The overload that fits these arguments."""
        raise NotImplementedError

    def make_plain_version(self) -> FunctionType:
        """The same source for plain Python, with functions of numbers in place of those of tensors."""
        raise NotImplementedError

    def python(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the same source, and that of the functions it calls, under plain Python, where a debugger can follow."""
        python_calls.depth += 1
        try:
            return self.run_as_python(arguments, keywords)
        finally:
            python_calls.depth -= 1

    def debug(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs as `python` does, and checks that no iteration of a parallel loop writes what another one accesses."""
        python_calls.checked += 1
        try:
            return self.python(*arguments, **keywords)
        finally:
            python_calls.checked -= 1

    def run_as_python(self, arguments: tuple[Any, ...], keywords: dict[str, Any], inside: bool = False) -> Any:
        """Runs the overload that fits under plain Python; arguments are values, so it gets copies.

        `inside` another function that runs under plain Python, it writes the arrays of `inout` parameters themselves.
        """
        function = self if len(self.overloads) == 1 else self.choose(arguments, keywords)
        version, signature = function.make_plain_version(), function.signature
        takes = [p.annotation.inout and inside for p in signature.parameters] + [False] * len(arguments)
        values = [v if same or not is_mutable_value(v) else v.copy() for v, same in zip(arguments, takes, strict=False)]
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
        """A transform of this function, or of a method or derivative made from it; `lazily` is that of tensor code."""
        raise NotImplementedError

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        """What `lg.grad` and the other transforms of tensor code do to this function."""
        return self.transform(self, name, lazily, **options)

    # --- compiling ---

    def compile_for(self, slots: tuple[Slot, ...]) -> Specialization:
        """Compiles the body for these slots."""
        raise NotImplementedError

    @classmethod
    def capture(cls, function: FunctionType) -> CapturedFunction:
        """A plain Python function that compiled code calls, as a captured one that is not differentiable."""
        raise NotImplementedError

    def verify(self, context: Context) -> None:
        """What a kind of function demands of its body, beyond that it compiles."""

    def wrap_call_result(self, result: Node) -> Node:
        """What a kind of function makes of the result where another function calls it."""
        return result

    def specialize(self, slots: tuple[Slot, ...]) -> Specialization:
        """The function for these slots: compiled now, or kept from before if it is still current."""
        specialization = self._specializations.get(slots)
        if specialization is not None and specialization.is_current():
            return specialization
        self.compile_count += 1
        compiled = self.compile_for(slots)
        compiled.edition = self.edition
        self._specializations[slots] = compiled
        return compiled

    def forget_specializations(self) -> None:
        """Compiles the function anew when it is next called, and what was made from it."""
        self._specializations.clear()
        self.edition += 1

    def ir(self, *types: Any) -> str:
        """The text of the IR for these parameter types (those of the signature unless told)."""
        return print_function(self.specialization_for(*types).function)

    def specialization_for(self, *types: Any) -> Specialization:
        """The specialisation for parameter types; those of the signature unless told."""
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


@dataclass(frozen=True, eq=False, slots=True)  # slots: whatever wraps it copies the attributes that lie in a dict
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
        """Runs the method's source under plain Python."""
        return self.function.python(self.instance, *arguments, **keywords)

    def __livegrad_transform__(self, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        """A gradient by arguments of the method; the instance stays as it is."""
        argnums = options.get("argnums")
        if argnums is None:
            return self.function.transform(self, name, lazily, **options)
        shifted = argnums + (argnums >= 0) if isinstance(argnums, int) else tuple(p + (p >= 0) for p in argnums)
        derived = self.function.transform(self.function, name, lazily, **{**options, "argnums": shifted})
        return lambda *arguments, **keywords: derived(self.instance, *arguments, **keywords)


class _PlainCalls(threading.local):
    """The number of active calls of `python` in this thread, and how many of them check parallel loops."""

    depth = 0
    checked = 0


python_calls = _PlainCalls()


def enclosing_frames(function: FunctionType) -> list[FrameType]:
    """The frames of the functions in which another one is being defined: its annotations may name their locals."""
    annotations = function.__annotations__.values()
    texts = any(mentions(value, lambda part: isinstance(part, str | ForwardRef)) for value in annotations)
    if "<locals>" not in function.__qualname__ or not texts:
        return []
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is function.__globals__ and frame.f_code.co_name != "<module>":
            frames.append(frame)
        frame = frame.f_back
    return frames
