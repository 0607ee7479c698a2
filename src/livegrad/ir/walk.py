"""Traverses and rewrites the IR: topological order, bottom-up rewriting, nested functions.

All walks are iterative, so that the depth of a graph is unlimited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from livegrad.diagnostics import SourceLocation
from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.source_lines import add_origins, originating_from

if TYPE_CHECKING:
    from livegrad.ir.op import Op


def toposort(roots: Iterable[Node], stop: Callable[[Node], bool] | None = None) -> list[Node]:
    """All nodes that the roots depend on, operands first. The order depends on structure alone.

    The walk does not visit the operands of nodes for which `stop` is true.
    """
    order: list[Node] = []
    visited: set[Node] = set()
    # A None on the stack marks that all operands of the node below it have been visited.
    pending: list[Node | None] = [*roots]
    pending.reverse()
    # Bound methods: a compilation runs this loop a hundred times.
    pop, push, mark_visited, emit = pending.pop, pending.append, visited.add, order.append
    while pending:
        node = pop()
        if node is None:
            emit(pop())  # type: ignore[arg-type]
            continue
        if node in visited:
            continue
        mark_visited(node)
        operands = node.operands
        if not operands or (stop is not None and stop(node)):
            emit(node)
            continue
        push(node)
        push(None)
        for operand in operands[::-1]:
            if operand not in visited:
                push(operand)
    return order


def nodes_of(function: Function) -> tuple[Node, ...]:
    """All nodes that a function's results depend on, operands first; cached."""
    order = function.__dict__.get("_nodes")
    if order is None:
        order = function.__dict__["_nodes"] = tuple(toposort(function.results))
    return order


def users_of(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """The nodes that use each node, in their order; a node is listed once for each of its uses."""
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for operand in node.operands:
            users[operand].append(node)
    return users


def remember_nodes(function: Function, nodes: Sequence[Node]) -> None:
    """Caches the result of `nodes_of` for a function whose nodes replace those of another graph, in its order."""
    if len(set(nodes)) == len(nodes):  # otherwise two nodes became one, and the order may be another
        function.__dict__["_nodes"] = tuple(nodes)


def rebuild(node: Node, operands: tuple[Node, ...]) -> Node:
    """Returns a node with the same op and attributes, but other operands."""
    if operands == node.operands:  # nodes compare by identity
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
    """Applies `rule` bottom-up, to nodes whose operands are rewritten already. A rule that returns None keeps the node.

    `replacements` maps nodes to their initial replacements, and the walk does not visit the operands of these nodes.
    `locations` has the source locations of the nodes in their function.
    """
    roots = tuple(roots)
    rewritten = rewrite_all(roots, rule, replacements, locations)
    return tuple(rewritten[root] for root in roots)


def rewrite_all(
    roots: Iterable[Node],
    rule: Callable[[Node], Node | None],
    replacements: dict[Node, Node] | None = None,
    locations: Mapping[Node, tuple[SourceLocation, ...]] | None = None,
) -> dict[Node, Node]:
    """Like `rewrite`, but returns the replacement of every node."""
    order = toposort(roots, stop=replacements.__contains__ if replacements else None)
    return rewrite_in_order(order, rule, replacements, locations)


def rewrite_in_order(
    order: Iterable[Node],
    rule: Callable[[Node], Node | None],
    replacements: Mapping[Node, Node] | None = None,
    locations: Mapping[Node, tuple[SourceLocation, ...]] | None = None,
) -> dict[Node, Node]:
    """`rewrite_all` for nodes of which each comes after its operands."""
    rewritten: dict[Node, Node] = {} if replacements is None else dict(replacements)
    changes = rule is not keep
    keeps_types = not changes and all(old.type is new.type for old, new in rewritten.items())
    with originating_from(()) as current:
        for node in order:
            if node in rewritten:
                continue
            rebuilt, operands = node, node.operands
            new_operands = tuple([rewritten[operand] for operand in operands])
            has_new_operands = new_operands != operands  # nodes compare by identity
            if has_new_operands or changes:
                origins = None if locations is None or node.located else locations.get(node)
                if origins is None:
                    origins = node.origins
                current.move_to(origins)
                if has_new_operands:
                    rebuilt = make_node(node.op, new_operands, node.attributes, node if keeps_types else None)
                replacement = rule(rebuilt) if changes else None
                if replacement is not None and replacement is not rebuilt:
                    add_origins(replacement, origins)
                    rebuilt = replacement
            rewritten[node] = rebuilt
    return rewritten


def substitute(
    roots: Iterable[Node],
    replacements: dict[Node, Node],
    locations: Mapping[Node, tuple[SourceLocation, ...]] | None = None,
) -> tuple[Node, ...]:
    """Replaces nodes in the graphs of the roots."""
    return rewrite(roots, keep, replacements, locations)


def keep(node: Node) -> None:
    """A rewrite rule that changes nothing."""
    return None


def exchanged_functions(value: Attribute, exchange: Mapping[Function, Function]) -> Attribute:
    """Replaces functions in attributes or in one attribute; returns the same object if there is nothing to replace."""
    if isinstance(value, Function):
        return exchange.get(value, value)
    if value.__class__ is not tuple:
        return value
    changed = tuple([exchanged_functions(item, exchange) for item in value])
    return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed


def ops_in(function: Function) -> frozenset[Op]:
    """The ops of a function's own nodes; cached."""
    ops = function.__dict__.get("_ops")
    if ops is None:
        ops = function.__dict__["_ops"] = frozenset([node.op for node in nodes_of(function)])
    return ops


def ops_below(function: Function) -> frozenset[Op]:
    """The ops of a function and of all functions it uses; cached."""
    if "_ops_below" not in function.__dict__:
        below: dict[Function, frozenset[Op]] = {}
        for inner in reachable_functions([function], stop=lambda used: "_ops_below" in used.__dict__):
            if "_ops_below" not in inner.__dict__:
                inner.__dict__["_ops_below"] = ops_in(inner).union(*[below[used] for used in functions_in(inner)])
            below[inner] = inner.__dict__["_ops_below"]
    return function.__dict__["_ops_below"]


def functions_in(function: Function) -> tuple[Function, ...]:
    """The functions in the attributes of a function's own nodes; cached."""
    functions = function.__dict__.get("_functions")
    if functions is None:
        functions = tuple(dict.fromkeys([inner for node in nodes_of(function) for inner in node.functions]))
        function.__dict__["_functions"] = functions
    return functions


def reachable_functions(roots: Iterable[Function], stop: Callable[[Function], bool] | None = None) -> list[Function]:
    """The functions and all functions they use, callees first. The walk does not continue where `stop` is true."""
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
