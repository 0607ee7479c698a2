"""Control flow in the graph: `cond`, `switch`, `while_loop`, `fori_loop` and `scan`.

Branches and bodies take and return pytrees of tensors, and may capture values. Both derivative modes are supported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.leaves import constant
from livegrad.ir.node import Function, Node
from livegrad.ir.scopes import Scope
from livegrad.ir.types import Tape, Type, bool_, i64, scalar_of, shape_of
from livegrad.ir.types import Tensor as TensorType
from livegrad.ir.walk import substitute
from livegrad.ops.aggregate import get
from livegrad.ops.closing import close_branches
from livegrad.ops.control import cond as cond_op
from livegrad.ops.control import make_for_loop, make_while_loop
from livegrad.ops.control import switch as switch_op
from livegrad.ops.conversion import cast
from livegrad.ops.failing import constant_integer
from livegrad.ops.indexing import lookup
from livegrad.ops.tape import tape_get, tape_new, tape_set, tape_stack, tape_unstack
from livegrad.passes.counted_while_loops import as_for_loop
from livegrad.tensors.declared import convert_declared_number, convert_declared_numbers
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import are_weak_numbers, node_of, wrap
from livegrad.tensors.pytrees import Structure, flatten, unflatten
from livegrad.tensors.tracing import (
    Arguments,
    convert_leaves,
    convert_like,
    flatten_arguments,
    name_of,
    placeholders,
    require_callable,
    result_node,
)
from livegrad.tensors.weak_types import mark_loop_numbers


def cond(predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """Returns `then(*operands)` if the predicate holds, else `otherwise(*operands)`. Only the taken branch is computed.

    >>> import livegrad as lg
    >>> x = lg.asarray(-4.0)
    >>> lg.cond(x > 0, lg.sqrt, lambda x: -x, x)
    Tensor(4., dtype=float32)
    """
    arguments = flatten_arguments(operands, "cond")
    (first, second), captures, structure = _close_branches((then, otherwise), arguments)
    holds = _scalar_node(predicate, bool_, "cond")
    return _unpack_results(cond_op(holds, *arguments.nodes, *captures, then=first, otherwise=second), structure)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Applies the branch at this index to the operands. Only the taken branch is computed.

    >>> import livegrad as lg
    >>> lg.switch(1, [lambda x: x, lambda x: x * 10.0], lg.asarray(2.0))
    Tensor(20., dtype=float32)
    """
    if not branches:
        raise UsageError("`switch` needs a branch", where=caller_origin())
    arguments = flatten_arguments(operands, "switch")
    functions, captures, structure = _close_branches(branches, arguments)
    number = _scalar_node(index, i64, "switch")
    return _unpack_results(switch_op(number, *arguments.nodes, *captures, branches=tuple(functions)), structure)


def while_loop(
    condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any, *, max_iters: int | None = None
) -> Any:
    """Repeats `state = body(state)` while `condition(state)` holds. Exceeding `max_iters` is an error.

    >>> import livegrad as lg
    >>> lg.while_loop(lambda x: x < 100.0, lambda x: x * 2.0, lg.asarray(3.0))
    Tensor(192., dtype=float32)
    """

    require_callable(condition, "while_loop")
    require_callable(body, "while_loop")

    def loop(inputs: list[Node], state: _State) -> Any:
        def test(*nodes: Node) -> Node:
            return _scalar_node(condition(state.inside(nodes)), bool_, "while_loop")

        def step(index: Node, *nodes: Node) -> tuple[Node, ...]:
            return _check_carried_state(body(state.inside(nodes)), state.structure, inputs, name_of(body))

        results = make_while_loop(test, step, *inputs, limit=max_iters)
        counted = as_for_loop(results[0].operands[0]) if results else None
        if counted is not None:
            results = tuple([get(counted, index=index) for index in range(len(results))])
        return unflatten(state.structure, map(wrap, results))

    return _run_loop(convert_declared_number(body, 0, state), (), "while_loop", loop)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, Any], Any], state: Any) -> Any:
    """Runs `state = body(index, state)` for each index from `lower` up to, but not including, `upper`.

    >>> import livegrad as lg
    >>> lg.fori_loop(0, 5, lambda i, total: total + i, lg.asarray(0))
    Tensor(10, dtype=int64)
    """
    require_callable(body, "fori_loop")
    start, end = _scalar_node(lower, i64, "fori_loop"), _scalar_node(upper, i64, "fori_loop")
    first, last = constant_integer(start), constant_integer(end)
    iterations = end - start if first is None or last is None else constant(last - first, i64)

    def loop(inputs: list[Node], state: _State) -> Any:
        def step(index: Node, *nodes: Node) -> tuple[Node, ...]:
            value = body(wrap(index + start), state.inside(nodes))
            return _check_carried_state(value, state.structure, inputs, name_of(body))

        return unflatten(state.structure, map(wrap, make_for_loop(iterations, step, *inputs)))

    return _run_loop(convert_declared_number(body, 1, state), (), "fori_loop", loop)


def scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    inputs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Runs `state, output = body(state, input)` along the first axis of the inputs; returns the last state and stacked
    outputs.

    >>> import livegrad as lg
    >>> lg.scan(lambda total, x: (total + x, total), lg.asarray(0.0), lg.asarray([1.0, 2.0, 3.0]))
    (Tensor(6., dtype=float32), Tensor([0., 1., 3.], dtype=float32))
    """
    require_callable(body, "scan")
    row_nodes, row_structure = _flat_nodes(inputs, "scan")
    size = _scan_length(row_nodes, length)

    def loop(inputs: list[Node], state: _State) -> tuple[Any, Any]:
        return _scan(body, inputs, state, row_nodes, row_structure, size, reverse)

    return _run_loop(convert_declared_number(body, 0, state), inputs, "scan", loop)


def _scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    inputs: Sequence[Node],
    state: _State,
    row_nodes: Sequence[Node],
    row_structure: Structure,
    size: Any,
    reverse: bool,
) -> tuple[Any, Any]:
    # The body is traced once here, not again by the loop: nested loops would double the number of traces per level.
    # Rows are read from a tape, as outputs are written to one: reverse mode then stores cotangents row by row instead
    # of adding a whole tensor in each iteration.
    row_tapes = [tape_unstack(row) for row in row_nodes]
    step_inputs = placeholders([*[node.type for node in inputs], *[tape.type.element for tape in row_tapes]])  # type: ignore[attr-defined]
    scope = Scope()
    with scope.entered():
        next_state, output = _step_once(
            body, state.inside(step_inputs[: len(inputs)]), step_inputs[len(inputs) :], row_structure
        )
        output_leaves, output_structure = flatten(output)
        outputs = [result_node(leaf, name_of(body)) for leaf in output_leaves]
        results = (*_check_carried_state(next_state, state.structure, inputs, name_of(body)), *outputs)
    tapes = [tape_new(type=Tape(node.type)) for node in outputs]

    def step(index: Node, *nodes: Node) -> tuple[Node, ...]:
        current, kept = nodes[: len(inputs)], nodes[len(inputs) :]
        values = (*current, *[tape_get(tape, index) for tape in row_tapes])
        outputs = substitute(results, dict(zip(step_inputs, values, strict=True)))
        fresh = zip(kept, outputs[len(inputs) :], strict=True)
        return (*outputs[: len(inputs)], *[tape_set(tape, index, value) for tape, value in fresh])

    loop_results = make_for_loop(constant(size, i64), step, *inputs, *tapes, reverse=reverse, scope=scope)
    last = unflatten(state.structure, map(wrap, loop_results[: len(inputs)]))
    stacked = [wrap(tape_stack(tape, size=size)) for tape in loop_results[len(inputs) :]]
    return last, unflatten(output_structure, stacked)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _flat_nodes(tree: Any, user: str) -> tuple[list[Node], Structure]:
    leaves, structure = flatten(tree)
    return [node_of(leaf, user) for leaf in leaves], structure


def _scalar_node(value: Any, target_type: Type, user: str) -> Node:
    """Converts a tensor without dimensions, or a number, to a scalar of the IR."""
    node = node_of(value, user)
    if shape_of(node.type) != ():
        raise ShapeError(
            f"`{user}` takes a single value here", where=caller_origin(), found=f"shape {shape_of(node.type)}"
        )
    integer = constant_integer(node)
    if integer is not None and target_type is i64 and scalar_of(node.type) is i64:
        return constant(integer, i64)
    scalar = lookup(node)
    if target_type is bool_ and scalar.type is not bool_:
        raise UsageError(f"`{user}` needs a boolean", where=caller_origin(), found=str(scalar.type))
    if target_type is i64 and scalar_of(scalar.type).kind not in ("signed", "unsigned"):  # type: ignore[union-attr]
        raise UsageError(f"`{user}` takes an integer here", where=caller_origin(), found=str(scalar.type))
    return scalar if scalar.type is target_type else cast(scalar, type=target_type)


def _close_branches(
    branches: Sequence[Callable[..., Any]], arguments: Arguments
) -> tuple[list[Function], tuple[Node, ...], Structure]:
    """Traces branches over pytrees to functions over nodes; returns them with captures and the result structure.

    Each branch is called once. Python numbers take the type of the tensors that other branches return for the same
    leaf.
    """
    for branch in branches:
        require_callable(branch, "a choice")
    inputs = placeholders([node.type for node in arguments.nodes])
    structures: list[Structure] = []
    row_nodes: list[list[Any]] = []
    scope = Scope()
    for branch in branches:
        with scope.entered():
            leaves, structure = flatten(
                branch(*convert_declared_numbers(branch, arguments.filled(map(wrap, inputs)), {})[0])
            )
        row_nodes.append(leaves)
        structures.append(structure)
        if structure != structures[0]:
            raise UsageError(
                "the branches return different tree structures",
                where=caller_origin(),
                help=f"`{name_of(branch)}` must return the same structure as the first branch",
            )
    columns = [_unify_leaf_types(column, branches) for column in zip(*row_nodes, strict=True)]
    results = [tuple(column[index] for column in columns) for index in range(len(branches))]
    functions, captures = close_branches([name_of(branch) for branch in branches], inputs, results, scope)
    return functions, captures, structures[0]


def _unify_leaf_types(column: Sequence[Any], branches: Sequence[Callable[..., Any]]) -> list[Node]:
    """Converts the results of all branches for a leaf to nodes; numbers take the type of the tensors if these agree."""
    tensors = [leaf for leaf in column if not are_weak_numbers(leaf)]
    types = {result_node(leaf, name_of(branches[0])).type for leaf in tensors}
    target_type = types.pop() if len(types) == 1 else None
    return [
        result_node(leaf, name_of(branch)) if target_type is None else convert_like(leaf, target_type, name_of(branch))
        for leaf, branch in zip(column, branches, strict=True)
    ]


def _unpack_results(result: Node, structure: Structure) -> Any:
    """Unpacks the tuple node of a branch op into a pytree of results."""
    if isinstance(result.type, TensorType):
        return unflatten(structure, [wrap(result)])
    count = len(result.type.elements)  # type: ignore[attr-defined]
    return unflatten(structure, [wrap(get(result, index=index)) for index in range(count)])


def _check_carried_state(value: Any, structure: Structure, before: Sequence[Node], name: str) -> tuple[Node, ...]:
    """Converts the result of a loop's body to nodes; raises unless it has the structure and types of the state."""
    leaves, returned = flatten(value)
    if returned != structure:
        raise UsageError(
            f"`{name}` must return the loop's state with the same tree structure that it received",
            where=caller_origin(),
            help="return the same pytree as the parameter",
        )
    nodes = tuple(
        convert_like(leaf, old.type, name) if are_weak_numbers(leaf) else result_node(leaf, name)
        for leaf, old in zip(leaves, before, strict=True)
    )
    for node, old in zip(nodes, before, strict=True):
        if node.type is not old.type:
            raise _ChangedType([node.type for node in nodes], _changed_type(name, old.type, node.type))
    return nodes


def _changed_type(name: str, old: Type, new: Type) -> UsageError:
    keeps_shape = shape_of(old) == shape_of(new)
    return UsageError(
        f"`{name}` changes the {'type' if keeps_shape else 'shape'} of the loop's state",
        where=caller_origin(),
        expected=str(old),
        found=str(new),
        help="cast the state before the loop, or the result inside it"
        if keeps_shape
        else "a loop's state keeps its shape: allocate the full size before the loop, or collect outputs with lg.scan",
    )


class _ChangedType(Exception):
    """A body changed the types of the loop state.

    A state that began as Python numbers may take the new `types`; otherwise `error` is raised.
    """

    def __init__(self, types: Sequence[Type], error: UsageError) -> None:
        self.types, self.error = types, error


@dataclass(frozen=True)
class _State:
    """The tree structure of a loop state, and which of its leaves began as Python numbers."""

    structure: Structure
    numbers: Sequence[bool]

    def inside(self, nodes: Sequence[Node]) -> Any:
        """Returns the state pytree that the body receives."""
        mark_loop_numbers(node for node, is_number in zip(nodes, self.numbers, strict=True) if is_number)
        return unflatten(self.structure, map(wrap, nodes))


def _run_loop(state: Any, context: Any, user: str, loop: Callable[[list[Node], _State], Any]) -> Any:
    """Calls `loop` with the nodes of a state. Python numbers in the state take the types that the body returns."""
    leaves, structure = flatten(state)
    nodes = convert_leaves(leaves, user, context)
    kind = _State(structure, [are_weak_numbers(leaf) for leaf in leaves])
    tries = 1 + 2 * len(leaves)  # the new type of one number may change others; some bodies never converge
    while True:
        try:
            return loop(nodes, kind)
        except _ChangedType as changed:
            retyped = [convert_like(leaf, type, user) for leaf, type in zip(leaves, changed.types, strict=True)]
            tries -= 1
            if not tries or all(new is old for new, old in zip(retyped, nodes, strict=True)):
                raise changed.error from None
            nodes = retyped


def _step_once(
    body: Callable[..., Any], state: Any, row_nodes: Sequence[Node], row_structure: Structure
) -> tuple[Any, Any]:
    returned = body(state, unflatten(row_structure, map(wrap, row_nodes)))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise UsageError(f"`{name_of(body)}` must return (state, output)", where=caller_origin())
    return returned


def _scan_length(row_nodes: Sequence[Node], length: int | None) -> Any:
    sizes = {shape_of(row.type)[:1] for row in row_nodes}
    if () in sizes or len(sizes) > 1:
        found = ", ".join(str(shape_of(row.type)) for row in row_nodes)
        raise ShapeError("the inputs of `scan` need first axes of equal size", where=caller_origin(), found=found)
    steps = next(iter(sizes))[0] if sizes else length
    if steps is None:
        raise UsageError("`scan` cannot tell how many steps to take", where=caller_origin(), help="pass length=...")
    if length is not None and length != steps:
        expected, found = f"as many steps as inputs: {steps}", f"length={length}"
        raise UsageError("`scan` got two different lengths", where=caller_origin(), expected=expected, found=found)
    return steps
