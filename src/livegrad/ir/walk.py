"""IR traversal: topological order, rewriting, nested functions. All walks are iterative, for any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.source_lines import add_origins, originating_from

if TYPE_CHECKING:
    from livegrad.ir.op import Op


def toposort(roots: Iterable[Node], stop: Callable[[Node], bool] | None = None) -> list[Node]:
    """Every node that the roots need, operands first, in an order that depends on structure alone.

    Where `stop` holds the walk does not go on to the operands.
    """
    order: list[Node] = []
    visited: set[Node] = set()
    # A None on the stack says that the node under it has all its operands behind it.
    pending: list[Node | None] = [*roots]
    pending.reverse()
    pop, push, see, put = pending.pop, pending.append, visited.add, order.append  # a compilation walks a hundred times
    while pending:
        node = pop()
        if node is None:
            put(pop())  # type: ignore[arg-type]
            continue
        if node in visited:
            continue
        see(node)
        operands = node.operands
        if not operands or (stop is not None and stop(node)):
            put(node)
            continue
        push(node)
        push(None)
        for operand in operands[::-1]:
            if operand not in visited:
                push(operand)
    return order


def nodes_of(function: Function) -> tuple[Node, ...]:
    """Every node that a function's results need, operands first; worked out once."""
    order = function.__dict__.get("_nodes")
    if order is None:
        order = function.__dict__["_nodes"] = tuple(toposort(function.results))
    return order


def rebuild(node: Node, operands: tuple[Node, ...]) -> Node:
    """The same op and attributes over other operands."""
    if operands == node.operands:  # nodes are equal when they are the same
        return node
    keeps_types = [operand.type for operand in operands] == [operand.type for operand in node.operands]
    with originating_from(node.origins):
        return make_node(node.op, operands, node.attributes, node if keeps_types else None)


def rewrite(
    roots: Iterable[Node],
    rule: Callable[[Node], Node | None],
    replacements: dict[Node, Node] | None = None,
    locations: Mapping[Node, tuple[SourceLocation, ...]] | None = None,
) -> tuple[Node, ...]:
    """The roots with `rule` applied bottom-up: it sees each node over rewritten operands; None keeps the node.

    `replacements` maps nodes to their initial replacements, below which the walk does not go; `locations` has the
    source locations of the nodes in their function.
    """
    roots = tuple(roots)
    done = exchange(roots, rule, replacements, locations)
    return tuple(done[root] for root in roots)


def exchange(
    roots: Iterable[Node],
    rule: Callable[[Node], Node | None],
    replacements: dict[Node, Node] | None = None,
    locations: Mapping[Node, tuple[SourceLocation, ...]] | None = None,
) -> dict[Node, Node]:
    """The replacement of every node in `rewrite`."""
    done: dict[Node, Node] = {} if replacements is None else dict(replacements)
    order = toposort(roots, stop=done.__contains__ if done else None)
    changes = rule is not keep
    keeps_types = not changes and all(old.type is new.type for old, new in done.items())
    with originating_from(()) as current:
        for node in order:
            if node in done:
                continue
            rebuilt, operands = node, node.operands
            over = tuple([done[operand] for operand in operands])
            # Nodes are equal when they are the same.
            moved = over != operands
            if moved or changes:
                origins = None if locations is None or node.located else locations.get(node)
                if origins is None:
                    origins = node.origins
                current.move_to(origins)
                if moved:
                    rebuilt = make_node(node.op, over, node.attributes, node if keeps_types else None)
                replaced = rule(rebuilt) if changes else None
                if replaced is not None and replaced is not rebuilt:
                    add_origins(replaced, origins)
                    rebuilt = replaced
            done[node] = rebuilt
    return done


def substitute(
    roots: Iterable[Node],
    replacements: dict[Node, Node],
    locations: Mapping[Node, tuple[SourceLocation, ...]] | None = None,
) -> tuple[Node, ...]:
    """The roots with nodes exchanged."""
    return rewrite(roots, keep, replacements, locations)


def keep(node: Node) -> None:
    """The rule that changes nothing."""
    return None


def exchanged_functions(value: Attribute, exchange: Mapping[Function, Function]) -> Attribute:
    """Attributes, or one of them, with functions exchanged; the very same object where there is none to exchange."""
    if isinstance(value, Function):
        return exchange.get(value, value)
    if value.__class__ is not tuple:
        return value
    changed = tuple([exchanged_functions(item, exchange) for item in value])
    return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed


def ops_in(function: Function) -> frozenset[Op]:
    """The ops of a function's own nodes; worked out once."""
    ops = function.__dict__.get("_ops")
    if ops is None:
        ops = function.__dict__["_ops"] = frozenset([node.op for node in nodes_of(function)])
    return ops


def ops_below(function: Function) -> frozenset[Op]:
    """The ops of a function and of all that it uses; worked out once."""
    if "_ops_below" not in function.__dict__:
        below: dict[Function, frozenset[Op]] = {}
        for inner in reachable_functions([function], stop=lambda used: "_ops_below" in used.__dict__):
            if "_ops_below" not in inner.__dict__:
                inner.__dict__["_ops_below"] = ops_in(inner).union(*[below[used] for used in functions_in(inner)])
            below[inner] = inner.__dict__["_ops_below"]
    return function.__dict__["_ops_below"]


def functions_in(function: Function) -> tuple[Function, ...]:
    """The functions that a function's own nodes have for attributes; worked out once."""
    functions = function.__dict__.get("_functions")
    if functions is None:
        functions = tuple(dict.fromkeys([inner for node in nodes_of(function) for inner in node.functions]))
        function.__dict__["_functions"] = functions
    return functions


def reachable_functions(roots: Iterable[Function], stop: Callable[[Function], bool] | None = None) -> list[Function]:
    """The functions and all that they use, users last. Where `stop` holds the walk does not go on."""
    roots = list(roots)
    if len(roots) == 1 and not functions_in(roots[0]):
        return roots
    order: list[Function] = []
    visited: set[Function] = set()
    pending: list[tuple[Function, bool]] = [(root, False) for root in reversed(roots)]
    while pending:
        function, ready = pending.pop()
        if ready:
            order.append(function)
            continue
        if function in visited:
            continue
        visited.add(function)
        pending.append((function, True))
        if stop is not None and stop(function):
            continue
        pending.extend((inner, False) for inner in functions_in(function) if inner not in visited)
    return order
