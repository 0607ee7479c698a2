"""Memoises the ops that calls of tensor functions create, so that repeated calls skip checks and type derivation.

`lg.mean(x)` promotes, checks axes and derives types to create three ops. These depend only on the types of its tensors
and on its other arguments. So a call that comes for the second time is traced on placeholders of the same types, and
later ones create the traced ops directly, deferred (`lazy/deferred_ops.py`). This covers the functions in `REPEATED`,
small data, and ops that cannot fail. `namespace` gives each function a `RepeatedCalls`, which `explain_calls` tries
first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import copysign
from typing import Any
from weakref import ref

from livegrad.diagnostics import LivegradError, caller_origins
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Node
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Scalar
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.walk import toposort
from livegrad.lazy.deferred_ops import defer_op, number_operand
from livegrad.lazy.small_ops import SmallCall, SmallNumber, SmallOp, Step, is_small
from livegrad.ops.placement import transfer
from livegrad.state import Owned, renew_lock_after_fork
from livegrad.tensors.deferred import operand_of
from livegrad.tensors.handle import Tensor, wrap
from livegrad.tensors.tracing import placeholders
from livegrad.tensors.weak_types import python_numbers

REPEATED = frozenset(
    """
    abs acos acosh add all amax amin any argmax argmin asin asinh astype atan atan2 atanh bitwise_and bitwise_invert
    bitwise_or bitwise_xor broadcast_to ceil clip concat conj copysign cos cosh cross cumulative_prod cumulative_sum
    diagonal diff divide dot equal exp expand_dims expm1 flip floor floor_divide fmod greater greater_equal hypot
    imag isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor logsumexp matmul matrix_transpose max maximum mean min minimum multiply negative not_equal outer
    permute_dims pow prod real reciprocal relu remainder reshape roll round sigmoid sign signbit silu sin sinh
    softmax sqrt square squeeze stack std subtract sum tan tanh tensordot tile trace transpose_matrix tril triu
    trunc var vecdot where
    """.split()  # noqa: SIM905
)
CREATION = frozenset({"arange", "eye", "linspace"})  # functions whose results may depend on no tensor
REPEATED_LINALG = frozenset({"cholesky", "det", "eigvalsh", "inv", "matrix_norm", "solve", "svdvals", "vector_norm"})
_MAX_CALLS = 1024
_MAX_STEPS = 256
_new = object.__new__
_VALUE_KEYED = frozenset({int, bool, str, type(None), type(Ellipsis)})
_Call = tuple[SmallOp, tuple["int | SmallNumber", ...]]  # with positions among the sources


class _Calls:
    """The cache of a session: ops by call key, and the keys of calls that came once."""

    def __init__(self) -> None:
        # Values keep the tensor types alive whose ids are part of the key.
        self.calls: LruCache[Any, tuple[_Call | None, list[Any]]] = LruCache(_MAX_CALLS)
        self.first_calls: LruCache[Any, list[Any]] = LruCache(_MAX_CALLS)
        self.lock = threading.Lock()
        renew_lock_after_fork(self, "lock")


_calls = Owned(_Calls)


class _NotRepeatable(Exception):
    """Raised for arguments that cannot be part of a call key."""


class RepeatedCalls:
    """The repeated calls of one function."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor | None, Any]:
        """Returns the result of a repeated call or a key for `call_and_learn`; neither if it cannot be cached."""
        if not ambient.is_unset or python_numbers.current.traces:
            return None, None
        key: list[Any] = [self._name]
        sources: dict[Any, int] = {}  # with their positions
        try:
            for arg in args:
                if arg.__class__ is Tensor and not sources and arg._extra is None:  # inlined from `_describe`
                    deferred = arg._deferred
                    source = arg._node if deferred is None else deferred[0] if deferred[1] is None else operand_of(arg)
                    if source is None:
                        return None, None
                    key.append(id(source.type))
                    sources[source] = 0
                else:
                    _describe(arg, key, sources)
            for name, arg in kwargs.items():
                key.append(name)
                _describe(arg, key, sources)
        except _NotRepeatable:
            return None, None
        if not sources and self._name not in CREATION:
            return None, None
        call_key = tuple(key)
        call = _calls.current.calls.get(call_key)
        if call is None:
            return None, (call_key, list(sources))
        return None if call[0] is None else repeat_call(call[0], list(sources)), None

    def call_and_learn(
        self, call_key: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls the function; caches the ops of a call that comes for the second time."""
        key, sources = call_key
        calls = _calls.current
        types = [source.type for source in sources]  # kept alive with the key, which has their ids
        with calls.lock:
            is_first = key not in calls.first_calls
            if is_first:  # a number that is another one in each call would fill the table
                calls.first_calls.keep(key, types)
        if is_first:
            return function(*args, **kwargs)
        call = _trace_call(function, args, kwargs, sources) if all(map(is_small, types)) else None
        result = function(*args, **kwargs)
        if call is not None and (result.__class__ is not Tensor or result.type is not call[0].type):
            call = None  # what the result is depends on values
        with calls.lock:
            calls.calls.keep(key, (call, types))
        return result


def _trace_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], sources: list[Any]
) -> _Call | None:
    """Traces a call on placeholders in place of its tensors, which nothing can confuse with one another.

    Equal expressions are one node. So the nodes of the tensors themselves would not show which argument an op takes if
    two arguments are equal, or if one is what the function makes of another one.
    """
    nodes = placeholders([source.type for source in sources])
    tensors = dict(zip(sources, map(wrap, nodes), strict=True))
    try:
        result = function(
            *[_replace(arg, tensors) for arg in args], **{name: _replace(arg, tensors) for name, arg in kwargs.items()}
        )
    except LivegradError:
        return None  # it reads values, or the call is invalid
    return make_small_call(result, list(nodes)) if result.__class__ is Tensor and result._extra is None else None


def _replace(arg: Any, tensors: dict[Any, Tensor]) -> Any:
    """Replaces the tensors in an argument by those of their sources."""
    kind = arg.__class__
    if kind is Tensor:
        return tensors[operand_of(arg)]
    if kind is tuple or kind is list:
        return kind([_replace(item, tensors) for item in arg])
    if kind is slice:
        return slice(*[_replace(item, tensors) for item in (arg.start, arg.stop, arg.step)])
    return arg


def _describe(arg: Any, key: list[Any], sources: dict[Any, int]) -> None:
    """Appends an argument to the key: the type of a tensor, or the class and value of another argument."""
    kind = arg.__class__
    if kind is Tensor:
        source = operand_of(arg)
        if source is None or arg._extra is not None:
            raise _NotRepeatable
        if source in sources:
            key.append(~sources[source])
            return
        key.append(id(source.type))
        sources[source] = len(sources)
    elif kind in _VALUE_KEYED:
        key.append(kind)
        key.append(arg)
    elif kind is float:
        key.append(kind)  # -1.0 and 0.0 are also equal to the positions of other arguments
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


def make_small_call(result: Tensor, nodes: list[Node]) -> _Call | None:
    """Returns the ops that compute a result from placeholders; None if they need other data or are too many."""
    root = result.node
    order = toposort([root], stop=set(nodes).__contains__)
    reached = set(order)
    used = [position for position, node in enumerate(nodes) if node in reached]
    values: dict[Node, int] = {nodes[position]: number for number, position in enumerate(used)}
    if root in values:
        return None
    numbers: dict[Node, SmallNumber] = {}
    steps: list[Step] = []
    for node in order:
        if node in values or node.op is constant_op:
            continue
        number = number_operand(node)
        if number is not None:
            numbers[node] = number
            continue
        is_plain = node.op is not input_op and not node.functions and node.op is not transfer
        if not is_plain or node.type.__class__ is not TensorType or not is_small(node.type):
            return None
        if not all(operand in values or operand in numbers for operand in node.operands):
            return None
        operands = tuple([numbers[operand] if operand in numbers else values[operand] for operand in node.operands])
        forms = tuple([numbers.get(operand, operand) for operand in node.operands])
        values[node] = len(values)
        steps.append((SmallOp(node.op, node.attributes, forms, node.type), operands))  # type: ignore[arg-type]
    if not steps or len(steps) > _MAX_STEPS:
        return None
    if len(steps) == 1:
        small, operands = steps[0]
        return small, tuple([used[operand] if operand.__class__ is int else operand for operand in operands])  # type: ignore[index]
    return SmallCall(tuple(steps), tuple([nodes[position].type for position in used])), tuple(used)  # type: ignore[misc]


def repeat_call(call: _Call, sources: list[Any]) -> Tensor | None:
    """Creates a tensor with the same ops over other data; None if the ops cannot be deferred."""
    origins = caller_origins(2)
    small, positions = call
    operands = tuple([sources[position] if position.__class__ is int else position for position in positions])  # type: ignore[index]
    deferred = defer_op(small, operands, origins)
    if deferred is None:
        return None
    tensor = _new(Tensor)
    tensor._extra, tensor._deferred = None, (deferred, None, origins)
    deferred.holder = ref(tensor)
    return tensor
