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
from livegrad.ir.leaves import constant_op, input_op
from livegrad.ir.lru import LruCache
from livegrad.ir.node import Node
from livegrad.ir.source_lines import ambient
from livegrad.ir.types import Scalar
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.walk import toposort
from livegrad.lazy.deferred_ops import defer_op, node_of_operand, number_operand
from livegrad.lazy.small_ops import SmallCall, SmallNumber, SmallOp, Step, is_small
from livegrad.ops.placement import transfer
from livegrad.state import Owned
from livegrad.tensors.deferred import operand_of
from livegrad.tensors.handle import Tensor
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
_MAX_MADE = _MAX_STEPS  # nodes that a function makes of one argument
_new = object.__new__
_VALUE_KEYED = frozenset({int, bool, str, type(None), type(Ellipsis)})
_Call = tuple[SmallOp, tuple["int | SmallNumber", ...]]  # with positions among the sources


class _Calls:
    """The cache of a session: ops by call key, and the keys of calls that came once."""

    def __init__(self) -> None:
        # Values keep the tensor types alive whose ids are part of the key.
        self.calls: LruCache[Any, tuple[_Call | None, list[Any]]] = LruCache(_MAX_CALLS)
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

    def learn(self, call_key: Any, result: Any) -> None:
        """Caches the ops of a call when it comes for the second time."""
        key, sources = call_key
        calls = _calls.current
        if key not in calls.first_calls:  # a number that is another one in each call would fill the table
            calls.first_calls.keep(key, [source.type for source in sources])
            return
        call = None
        if result.__class__ is Tensor and result._extra is None:
            nodes = [node_of_operand(source) for source in sources]
            if _may_be_confused(nodes):
                return
            # The size of `x[i : i + n]` follows from how the bounds were computed, which is no part of the key.
            call = make_small_call(result, nodes, allow_checked=self._name != "get_item")
        calls.calls.keep(key, (call, [source.type for source in sources]))


def _may_be_confused(nodes: list[Node]) -> bool:
    """Whether an op of the call might have a node of `nodes` for another reason than that it is an argument.

    Equal expressions are one node. So two arguments may be one, or an argument may be what the function itself makes of
    another one, such as `lg.astype(x, lg.float64)` in `lg.maximum(x, lg.astype(x, lg.float64))`. Such a call teaches
    nothing about calls with unrelated arguments.
    """
    if len(nodes) < 2:
        return False
    distinct = set(nodes)
    return len(distinct) < len(nodes) or any(_is_made_of(node, distinct) for node in nodes)


def _is_made_of(root: Node, nodes: set[Node]) -> bool:
    """Whether a node is a short expression of others and of constants alone."""
    pending, visited, found = [root], {root}, False
    while pending:
        for operand in pending.pop().operands:
            if operand in visited:
                continue
            visited.add(operand)
            if operand in nodes:
                found = True
            elif operand.op is input_op or len(visited) > _MAX_MADE:
                return False  # made of other data, or longer than what a function makes
            else:
                pending.append(operand)
    return found


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


def make_small_call(result: Tensor, nodes: list[Node], *, allow_checked: bool = True) -> _Call | None:
    """Returns the ops that compute a result from the nodes of sources; None if they need other data or are too many."""
    root = result.node
    order = toposort([root], stop=set(nodes).__contains__)
    reached = set(order)
    used = [position for position, node in enumerate(nodes) if node in reached]
    values: dict[Node, int] = {nodes[position]: number for number, position in enumerate(used)}
    if root in values or not all(is_small(node.type) for node in nodes):
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
        if (node.located or node.op.checked) and not allow_checked:
            return None
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
