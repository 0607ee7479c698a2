"""Memoises the ops that calls of tensor functions create, so that repeated calls skip checks and type derivation.

`lg.mean(x)` promotes, checks axes and derives types to create three ops. These depend only on the types of its tensors
and on its other arguments, so a later call creates the same ops directly, deferred (`lazy/deferred_ops.py`). This
covers the functions in `REPEATED`, small data, and ops that cannot fail. `namespace` gives each function a
`RepeatedCalls`, which `explain_calls` tries first.
"""

from __future__ import annotations

from math import copysign
from typing import Any
from weakref import ref

from livegrad.diagnostics import caller_origins
from livegrad.ir.leaves import constant_op
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Node
from livegrad.ir.op import Op
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Scalar
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.walk import toposort
from livegrad.lazy.deferred_ops import DeferredOp, defer_op, is_small, node_of_operand
from livegrad.ops.movement import broadcast
from livegrad.ops.placement import transfer
from livegrad.state import Owned
from livegrad.tensors.handle import Tensor
from livegrad.tensors.tensor_operators import source_of
from livegrad.tensors.weak_types import python_numbers

REPEATED = frozenset(
    """
    abs acos acosh add all amax amin any argmax argmin asin asinh astype atan atan2 atanh bitwise_and bitwise_invert
    bitwise_or bitwise_xor broadcast_to ceil clip concat conj copysign cos cosh cross cumulative_prod cumulative_sum
    diagonal diff divide dot equal exp expand_dims expm1 flip floor greater greater_equal hypot imag isfinite isinf
    isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logsumexp
    matmul matrix_transpose max maximum mean min minimum multiply negative not_equal outer permute_dims pow prod
    real reciprocal relu reshape round sigmoid sign signbit silu sin sinh softmax sqrt square squeeze stack std
    subtract sum tan tanh tensordot tile trace transpose_matrix tril triu trunc var vecdot where
    """.split()  # noqa: SIM905
)
_MAX_CALLS = 1024
_MAX_STEPS = 8
_new = object.__new__
_VALUE_KEYED = frozenset({int, bool, str, type(None), type(Ellipsis)})
Step = tuple[Op, tuple[int | Node, ...], tuple[tuple[str, Any], ...], Any]


class _Calls:
    """The cache of a session: steps by call key, and the keys of calls that came once."""

    def __init__(self) -> None:
        # Values keep the tensor types alive whose ids are part of the key.
        self.steps: LruCache[Any, tuple[tuple[Step, ...], list[Any]]] = LruCache(_MAX_CALLS)
        self.first_calls: LruCache[Any, list[Any]] = LruCache(_MAX_CALLS)


_calls = Owned(_Calls)


class _NotRepeatable(Exception):
    """Raised for arguments that cannot be part of a call key."""


class RepeatedCalls:
    """The repeated calls of one function."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor | None, Any]:
        """Returns the result of a repeated call, or a key for `learn`; neither if the call cannot be cached."""
        if not ambient.is_unset or python_numbers.current.traces:
            return None, None
        key: list[Any] = [self._name]
        sources: list[Any] = []
        try:
            for arg in args:
                if arg.__class__ is Tensor and not sources and arg._extra is None:  # inlined from `_describe`
                    deferred = arg._deferred
                    source = arg._node if deferred is None or deferred[1] is not None else deferred[0]
                    if source is None:
                        return None, None
                    key.append(id(source.type))
                    sources.append(source)
                else:
                    _describe(arg, key, sources)
            for name, arg in kwargs.items():
                key.append(name)
                _describe(arg, key, sources)
        except _NotRepeatable:
            return None, None
        if not sources:
            return None, None
        call_key = tuple(key)
        steps = _calls.current.steps.get(call_key)
        return (None, (call_key, sources)) if steps is None else (repeat_steps(steps[0], sources), None)

    def learn(self, call_key: Any, result: Any) -> None:
        """Caches the ops of a call when it comes for the second time."""
        key, sources = call_key
        calls = _calls.current
        if key not in calls.first_calls:  # a number that is another one in each call would fill the table
            calls.first_calls.keep(key, [source.type for source in sources])
            return
        steps = extract_steps(result, sources) if result.__class__ is Tensor and result._extra is None else None
        calls.steps.keep(key, (steps or (), [source.type for source in sources]))


def _describe(arg: Any, key: list[Any], sources: list[Any]) -> None:
    """Appends an argument to the key: the type of a tensor, or the class and value of another argument."""
    kind = arg.__class__
    if kind is Tensor:
        source = source_of(arg)
        if source is None or arg._extra is not None:
            raise _NotRepeatable
        if source in sources:
            key.append(~sources.index(source))
            return
        key.append(id(source.type))
        sources.append(source)
    elif kind in _VALUE_KEYED:
        key.append(kind)
        key.append(arg)
    elif kind is float:
        key.append(copysign(1.0, arg))  # 0.0 is not -0.0
        key.append(arg)
    elif kind is tuple or kind is list:
        key.append((kind, len(arg)))
        for item in arg:
            _describe(item, key, sources)
    elif kind is slice:
        key.append(kind)
        for item in (arg.start, arg.stop, arg.step):
            _describe(item, key, sources)
    elif kind is Scalar:
        key.append(id(arg))
    else:
        raise _NotRepeatable


def extract_steps(result: Tensor, sources: list[Any]) -> tuple[Step, ...] | None:
    """Returns the ops that compute a result from sources; None if it needs other data, or an op may fail."""
    root = result.node
    values: dict[Node, int] = {node_of_operand(source): number for number, source in enumerate(sources)}
    if root in values:
        return None
    steps: list[Step] = []
    for node in toposort([root], stop=values.__contains__):
        if node in values or _is_number(node) or (node.op is constant_op):
            continue
        is_plain = node.operands and not node.functions and not node.located and not node.op.checked
        if not is_plain or node.op is transfer or node.type.__class__ is not TensorType or not is_small(node.type):
            return None
        if not all(operand in values or _is_number(operand) for operand in node.operands):
            return None
        operands = tuple([values.get(operand, operand) for operand in node.operands])
        values[node] = len(sources) + len(steps)
        steps.append((node.op, operands, node.attributes, node.type))
    small = all(is_small(source.type) for source in sources)
    return tuple(steps) if small and len(steps) <= _MAX_STEPS else None


def _is_number(node: Node) -> bool:
    """Whether a node is a broadcast number."""
    return node.op is broadcast and node.operands[0].op is constant_op


def repeat_steps(steps: tuple[Step, ...], sources: list[Any]) -> Tensor | None:
    """Creates a tensor with the same ops over other data; None if the ops cannot be deferred."""
    origins = caller_origins(2)
    values = sources
    deferred: DeferredOp | None = None
    for op, operands, attributes, type in steps:
        step_operands = tuple([values[operand] if operand.__class__ is int else operand for operand in operands])  # type: ignore[index]
        deferred = defer_op(op, step_operands, attributes, type, origins)
        if deferred is None:
            return None
        values.append(deferred)
    if deferred is None:
        return None
    tensor = _new(Tensor)
    tensor._extra, tensor._deferred = None, (deferred, None, origins)
    deferred.holder = ref(tensor)
    return tensor
