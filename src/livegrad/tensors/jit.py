"""`jit`: compiles a function on tensors once per signature, and then calls it without building a graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from sys import _getframe
from types import MethodType
from typing import Any, NoReturn

import numpy as np

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.diagnostics.explain_calls import call_users
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Function, Node
from livegrad.ir.size_guards import SizeGuards
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Scalar, Type, c128, f64, i64, scalar_of_dtype
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.walk import toposort
from livegrad.lazy.execution import execute
from livegrad.lazy.gradient_variables import may_be_differentiated
from livegrad.lazy.lazy_values import cached_value, is_traced, leaf_of, read_leaf
from livegrad.lazy.nan_checks import watch
from livegrad.passes.bind_sizes import has_symbolic_size
from livegrad.pickling import Reduced, reduce_function
from livegrad.runtime.arguments import is_dense
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.size_templates import SizeTemplates
from livegrad.state import renew_lock_after_fork
from livegrad.tensors.array_handles import defer_array
from livegrad.tensors.declared import convert_declared_numbers
from livegrad.tensors.errors import NumberRangeError
from livegrad.tensors.freeze_numbers import freeze_numbers
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.jit_entries import Entry, FastCall, make_fast_call, wrap_results
from livegrad.tensors.jit_signatures import (
    SignatureTemplate,
    TracedSignature,
    find_static_parameters,
    replace_sizes,
    split_sizes,
)
from livegrad.tensors.pytrees import Static, Structure, flatten, unflatten
from livegrad.tensors.tracing import close, name_of, placeholders
from livegrad.tensors.weak_types import weak_numbers

_MAX_SIGNATURES = 256
_new = object.__new__
_MAX_FAST_CALLS = 4
_INTEGERS = 1 << 63
# Python numbers are arguments like tensors, but weakly typed: inside, they take the type of the tensor beside them.
_NUMBERS: dict[type, Type] = {
    float: TensorType(f64, ()),
    int: TensorType(i64, ()),
    complex: TensorType(c128, ()),
}


class Jitted:
    """A function compiled by `jit`. It is traced once per signature: tree structure, element types and shapes."""

    def __init__(
        self, function: Callable[..., Any], static_argnums: int | Iterable[int], static_argnames: str | Iterable[str]
    ) -> None:
        if not callable(function):
            raise UsageError("`jit` takes a function", where=caller_origin(), found=type(function).__name__)
        self.function = function
        self._static_positions, self._static_names = find_static_parameters(function, static_argnums, static_argnames)
        self._entries: LruCache[Any, Entry] = LruCache(_MAX_SIGNATURES)
        self._templates: LruCache[Any, SizeTemplates[SignatureTemplate]] = LruCache(_MAX_SIGNATURES)
        # Fast calls for positional arguments without containers; the others are keyed by the argument structure.
        self._fast_calls: tuple[FastCall, ...] = ()
        self._nested_fast_calls: dict[Structure, tuple[FastCall, ...]] = {}
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)
        self.traces = 0  # the number of calls of the Python function
        update_wrapper(self, function, updated=())  # not the `__dict__`: attributes of a `Jitted` would replace ours

    def __repr__(self) -> str:
        times = {0: "not traced yet", 1: "traced once"}.get(self.traces, f"traced {self.traces} times")
        return f"<jit of {getattr(self.function, '__name__', repr(self.function))}, {times}>"

    def __reduce__(self) -> Reduced:
        return reduce_function(self, Jitted, (self.function, self._static_positions, self._static_names))

    @property
    def functions(self) -> tuple[Function, ...]:
        """The traced functions of the value IR, one per signature, oldest first.

        >>> import livegrad as lg
        >>> double = lg.jit(lambda x: 2.0 * x)
        >>> _ = double(lg.ones(3)), double(lg.ones((2, 2)))
        >>> [function.parameters[0].type for function in double.functions]
        [tensor<f32, [3]>, tensor<f32, [2, 2]>]
        """
        return tuple(entry.function for entry in self._entries.values())

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Binds a method: the object is the first argument."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and ambient.is_unset:  # false while NaN checks are active
            for fast_call in self._fast_calls:
                results = fast_call.run(*args) if fast_call.captures is None else fast_call.run_with_captures(args)
                if results is not None:
                    fast_call.runs.times += 1
                    if fast_call.type is None:
                        return fast_call.wrap_result(results)
                    # Inlined from `defer_array`, with a cached source location: this dominates small calls.
                    try:
                        caller = _getframe(1)
                    except ValueError:  # a thread whose first Python frame is this one
                        return defer_array(results, fast_call.type)
                    code, instruction, origins = fast_call.caller
                    if caller.f_lasti != instruction or caller.f_code is not code:
                        origins = fast_call.find_origins(caller)
                    tensor = _new(Tensor)
                    tensor._extra, tensor._deferred = None, (results, fast_call.type, origins)
                    return tensor
        if watch.active:
            return self._run_watched(args, kwargs)
        leaves, structure = (
            flatten(args) if not kwargs and not self._static_positions else self._flatten_arguments(args, kwargs)
        )
        for fast_call in self._nested_fast_calls.get(structure, ()):
            results = fast_call.run(*leaves) if fast_call.captures is None else fast_call.run_with_captures(leaves)
            if results is not None:
                fast_call.runs.times += 1
                return fast_call.wrap_result(results)
        parts: list[Any] = []
        arrays: list[Any] = []
        on_device = False  # whether some data lies on a device
        for leaf in leaves:
            kind = leaf.__class__
            if kind is Tensor:
                node = leaf.node
                data = leaf_of(node)
                if _belongs_to_a_graph(leaf, node) if data is None else leaf._extra is not None:
                    return self.function(*args, **kwargs)
                parts.append(node.type)
                value = leaf._stored_value() if data is None else read_leaf(data)
                if value.__class__ is not np.ndarray:
                    on_device = True
                arrays.append(value)
            elif kind in _NUMBERS:
                if kind is int and not -_INTEGERS <= leaf < _INTEGERS:
                    _raise_integer_range()
                parts.append(kind)
                arrays.append(leaf)
            elif _is_static(leaf):
                parts.append(Static(leaf))
            else:
                array = _to_native_layout(leaf)
                parts.append((array.dtype, array.shape))
                arrays.append(array)
        key = (structure, tuple(parts))
        entry = self._entries.get(key)
        if entry is None or not entry.is_current():
            entry = self._compile(key, args, kwargs, on_device)
        if entry is None or entry.reads_variables():
            return self.function(*args, **kwargs)
        for tensor in entry.captures:
            value = tensor._stored_value()
            if value.__class__ is not np.ndarray:
                on_device = True
            arrays.append(value)
        if on_device:
            plan, runs, _ = entry.device_run()
            results = plan.run_on_device(arrays, defers_checks=True)
        else:
            runs = entry.runs
            results = entry.plan.run(arrays)
            if not entry.has_fast_call and runs.times:  # not in the first run: the signature may not recur
                self._add_fast_call(entry, structure, parts)
        runs.times += 1
        return wrap_results(entry, results)

    def _add_fast_call(self, entry: Entry, structure: Structure, parts: Sequence[Any]) -> None:
        """Adds a fast call for this signature if its arguments allow one."""
        entry.has_fast_call = True
        fast_call = make_fast_call(entry, parts)
        if fast_call is None:
            return
        with self._lock:
            if structure == (tuple, *[None] * (len(parts) + 1)):
                self._fast_calls = (fast_call, *self._fast_calls[: _MAX_FAST_CALLS - 1])
            elif len(self._nested_fast_calls) < _MAX_SIGNATURES:
                previous = self._nested_fast_calls.get(structure, ())
                self._nested_fast_calls[structure] = (fast_call, *previous[: _MAX_FAST_CALLS - 1])

    def _run_watched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the function as a graph, node by node, so that NaN checks see the values inside."""
        result = self.function(*args, **kwargs)
        nodes = [leaf.node for leaf in flatten(result)[0] if isinstance(leaf, Tensor)]
        execute([node for node in nodes if not is_traced(node)])
        return result

    def _flatten_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Structure]:
        positional = tuple(Static(arg) if index in self._static_positions else arg for index, arg in enumerate(args))
        named = {name: Static(kwargs[name]) if name in self._static_names else kwargs[name] for name in sorted(kwargs)}
        return flatten((positional, named))

    def _compile(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_device: bool) -> Entry | None:
        """Compiles the entry for a signature; None if the function uses traced values of an enclosing function.

        For data on a device, the function is traced for its sizes, and nothing is compiled for the CPU.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.is_current():
                return entry
            skeleton, vector = split_sizes(key)
            templates = self._templates.use(skeleton) or self._templates.keep(skeleton, SizeTemplates())
            templates.drop_unless(SignatureTemplate.is_current)
            cached = templates.find(vector)
            template = cached
            if cached is None and not on_device:
                template = templates.make(vector, partial(self._make_template, args, kwargs))
            if template is not None:
                return self._entries.keep(key, template[0].payload.entry_for(template[1], cached is None))
            function, captures, structure = self._trace(args, kwargs)
            if any(map(is_traced, captures)):
                return None
            traced = TracedSignature(function, captures, structure)
            entry = traced.entry_for(lambda: compile_function(function).plan())
            if not on_device:
                _ = entry.plan  # an error of the compiler leaves no entry
            return self._entries.keep(key, entry)

    def _make_template(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], guards: SizeGuards, vector: Sequence[int]
    ) -> SignatureTemplate:
        """Traces and compiles the function for the sizes in a vector, some of which are symbols."""
        function, captures, structure = self._trace(args, kwargs, vector)
        if any(map(is_traced, captures)):
            raise UsageError("a function that uses traced values of an enclosing function is not compiled")
        template = compile_function(function).template(guards)
        return SignatureTemplate(TracedSignature(function, captures, structure), template)

    def _trace(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], vector: Sequence[int] | None = None
    ) -> tuple[Function, Any, Structure]:
        """Traces the function for these arguments, with the sizes in a vector if there is one."""
        self.traces += 1
        leaves, structure = self._flatten_arguments(args, kwargs)
        dynamic = [leaf for leaf in leaves if not _is_static(leaf)]
        types = [_type_of(leaf) for leaf in dynamic]
        inputs = placeholders(types if vector is None else replace_sizes(types, iter(vector)))
        tensors = map(wrap, inputs)
        arguments = [
            leaf.value if isinstance(leaf, Static) else leaf if _is_static(leaf) else next(tensors) for leaf in leaves
        ]
        positional, named = unflatten(structure, arguments)
        with weak_numbers(node for node, leaf in zip(inputs, dynamic, strict=True) if leaf.__class__ in _NUMBERS):
            positional, named = convert_declared_numbers(self.function, positional, named, traced_only=True)
            returned = call_users(self.function, positional, named)
            traced = close(
                name_of(self.function), inputs, returned, _can_be_captured if vector is None else _is_size_independent
            )
        traced = freeze_numbers(traced)
        for result in traced.function.result_types:
            if not isinstance(result, TensorType):
                raise UsageError("a compiled function must return tensors", where=caller_origin(), found=str(result))
        return traced.function, traced.captures, traced.structure

    def sizes(self) -> str:
        """Describes for which sizes the function was compiled once, and why not for others.

        >>> import livegrad as lg
        >>> double = lg.jit(lambda x: 2.0 * x)
        >>> _ = double(lg.ones(3)), double(lg.ones(4)), double(lg.ones(5))
        >>> print(double.sizes())
        traced 2 times for 3 signatures
          s0 from 2 to 4194303
        """
        lines = [f"traced {self.traces} times for {len(self._entries)} signatures"]
        for templates in self._templates.values():
            lines += [f"  {template.guards.summary()}" for template in templates.templates]
            lines += [f"  compiled for one size: {reason}" for reason in dict.fromkeys(templates.failures)]
        return "\n".join(lines)

    def forget(self) -> None:
        """Drops all compiled signatures."""
        with self._lock:
            self._entries.clear()
            self._templates.clear()
            self._fast_calls = ()
            self._nested_fast_calls.clear()


def _can_be_captured(node: Node) -> bool:
    """Whether a node can be a capture, which is passed to each call; tapes and tuples cannot."""
    return isinstance(node.type, TensorType | Scalar)


def _is_size_independent(node: Node) -> bool:
    """Whether a node can be a capture and is the same for all sizes; nodes that depend on a size are traced inside."""
    return _can_be_captured(node) and not any(map(has_symbolic_size, toposort([node])))


def _belongs_to_a_graph(tensor: Tensor, node: Node) -> bool:
    """Whether a tensor depends on an enclosing trace or a gradient variable, so that the call must extend a graph."""
    if tensor._extra is not None or (cached_value(node) is None and is_traced(node)):
        return True
    return may_be_differentiated(node)


def _raise_integer_range() -> NoReturn:
    raise NumberRangeError(
        "an integer argument does not fit int64",
        where=caller_origin(),
        help="pass a tensor: lg.asarray(number, dtype=lg.uint64)",
    )


def _to_native_layout(value: Any) -> Any:
    """Returns an array that compiled code can read: contiguous and in native byte order."""
    if value.__class__ is np.ndarray and is_dense(value) and value.dtype.isnative:
        return value
    return np.array(value, value.dtype.newbyteorder("="), order="C")


def _is_static(leaf: Any) -> bool:
    kind = leaf.__class__
    return not (kind is Tensor or kind in _NUMBERS or kind is np.ndarray or isinstance(leaf, np.number))


def _type_of(leaf: Any) -> Type:
    if isinstance(leaf, np.ndarray | np.number):
        return TensorType(scalar_of_dtype(leaf.dtype.newbyteorder("=")), leaf.shape)
    return _NUMBERS.get(leaf.__class__) or node_of(leaf, "jit").type


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """Compiles a function. It is traced once for each signature, then runs as native code without building a graph.

    Python numbers may change from call to call without a new trace; booleans, strings and other hashable objects are
    part of the signature. Captured tensors are read at each call; if one was updated in place, the function is traced
    again. A captured name that was rebound is not noticed. With tensors that require a gradient, the function runs
    uncompiled and extends their graph.

    >>> import livegrad as lg
    >>> @lg.jit
    ... def step(x, rate):
    ...     return x - rate * x
    >>> step(lg.asarray([1.0, 2.0]), 0.5)
    Tensor([0.5, 1. ], dtype=float32)
    >>> step(lg.asarray([1.0, 2.0]), 0.25), step.traces
    (Tensor([0.75, 1.5 ], dtype=float32), 1)
    """
    if function is None:
        return lambda target: Jitted(target, static_argnums, static_argnames)
    return Jitted(function, static_argnums, static_argnames)
