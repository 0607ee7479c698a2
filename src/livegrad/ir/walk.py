"""Walks over the IR: topological order, rewriting, functions within functions. All are iterative, for any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from livegrad.ir.node import Function, Node, add_origins, make_node, originating_from


def toposort(roots: Iterable[Node], stop: Callable[[Node], bool] | None = None) -> list[Node]:
    """Every node that the roots need, operands first, in an order that depends on structure alone.

    Where `stop` holds the walk does not go on to the operands.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    # A None on the stack says that the node under it has all its operands behind it.
    pending: list[Node | None] = list(reversed(list(roots)))
    while pending:
        node = pending.pop()
        if node is None:
            order.append(pending.pop())  # type: ignore[arg-type]
            continue
        if node in seen:
            continue
        seen.add(node)
        if not node.operands or (stop is not None and stop(node)):
            order.append(node)
            continue
        pending.append(node)
        pending.append(None)
        for operand in reversed(node.operands):
            if operand not in seen:
                pending.append(operand)
    return order


def nodes_of(function: Function) -> tuple[Node, ...]:
    """Every node that a function's results need, operands first; worked out once."""
    order = function.__dict__.get("_nodes")
    if order is None:
        order = function.__dict__["_nodes"] = tuple(toposort(function.results))
    return order


def rebuild(node: Node, operands: tuple[Node, ...]) -> Node:
    """The same op and attributes over other operands."""
    if all(old is new for old, new in zip(node.operands, operands, strict=True)):
        return node
    with originating_from(node.origins):
        return make_node(node.op, operands, node.attributes)


def rewrite(
    roots: Iterable[Node], rule: Callable[[Node], Node | None], given: dict[Node, Node] | None = None
) -> tuple[Node, ...]:
    """The roots with `rule` applied bottom-up: it sees each node over rewritten operands; None keeps the node.

    `given` maps nodes to what stands for them from the start; the walk does not look below those.
    """
    roots = tuple(roots)
    done = exchange(roots, rule, given)
    return tuple(done[root] for root in roots)


def exchange(
    roots: Iterable[Node], rule: Callable[[Node], Node | None], given: dict[Node, Node] | None = None
) -> dict[Node, Node]:
    """What `rewrite` puts in place of every node."""
    done: dict[Node, Node] = {} if given is None else dict(given)
    with originating_from(()) as places:
        for node in toposort(roots, stop=done.__contains__):
            if node in done:
                continue
            places.move_to(node.origins)
            rebuilt = _over(node, done) if node.operands else node
            replaced = rule(rebuilt)
            if replaced is not None and replaced is not rebuilt:
                add_origins(replaced, node.origins)
                rebuilt = replaced
            done[node] = rebuilt
    return done


def _over(node: Node, done: dict[Node, Node]) -> Node:
    operands = [done[operand] for operand in node.operands]
    for old, new in zip(node.operands, operands, strict=True):
        if old is not new:
            return make_node(node.op, tuple(operands), node.attributes)
    return node


def substitute(roots: Iterable[Node], given: dict[Node, Node]) -> tuple[Node, ...]:
    """The roots with nodes exchanged."""
    return rewrite(roots, keep, given)


def keep(node: Node) -> None:
    """The rule that changes nothing."""
    return None


def restore_places(function: Function) -> None:
    """Makes the nodes of a function, and of those inside it, stand for the places where this function has them."""
    for inner in reachable_functions([function]):
        for node, places in inner.places.items():
            add_origins(node, places, first=True)


def attribute_functions(node: Node) -> Iterator[Function]:
    """The functions among a node's attributes, in tuples too: bodies of loops, branches, callees."""
    pending = [value for _, value in reversed(node.attributes)]
    while pending:
        value = pending.pop()
        if isinstance(value, Function):
            yield value
        elif isinstance(value, tuple):
            pending.extend(reversed(value))


def functions_in(function: Function) -> tuple[Function, ...]:
    """The functions that a function's own nodes have for attributes; worked out once."""
    found = function.__dict__.get("_functions")
    if found is None:
        holders = [node for node in nodes_of(function) if node.attributes]
        found = tuple(dict.fromkeys(inner for node in holders for inner in attribute_functions(node)))
        function.__dict__["_functions"] = found
    return found


def reachable_functions(roots: Iterable[Function]) -> list[Function]:
    """The functions and all that they use, users last."""
    order: list[Function] = []
    seen: set[Function] = set()
    pending: list[tuple[Function, bool]] = [(root, False) for root in reversed(list(roots))]
    while pending:
        function, ready = pending.pop()
        if ready:
            order.append(function)
            continue
        if function in seen:
            continue
        seen.add(function)
        pending.append((function, True))
        pending.extend((inner, False) for inner in functions_in(function) if inner not in seen)
    return order
