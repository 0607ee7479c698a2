"""Walks over the IR: topological order, rewriting, functions within functions. All are iterative, for any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from livegrad.diagnostics import Place
from livegrad.ir.node import Attribute, Function, Node, make_node
from livegrad.ir.origins import add_origins, originating_from


def toposort(roots: Iterable[Node], stop: Callable[[Node], bool] | None = None) -> list[Node]:
    """Every node that the roots need, operands first, in an order that depends on structure alone.

    Where `stop` holds the walk does not go on to the operands.
    """
    order: list[Node] = []
    seen: set[Node] = set()
    # A None on the stack says that the node under it has all its operands behind it.
    pending: list[Node | None] = [*roots]
    pending.reverse()
    pop, push, see, put = pending.pop, pending.append, seen.add, order.append  # a compilation walks a hundred times
    while pending:
        node = pop()
        if node is None:
            put(pop())  # type: ignore[arg-type]
            continue
        if node in seen:
            continue
        see(node)
        operands = node.operands
        if not operands or (stop is not None and stop(node)):
            put(node)
            continue
        push(node)
        push(None)
        for operand in operands[::-1]:
            if operand not in seen:
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
    if all(old is new for old, new in zip(node.operands, operands, strict=True)):
        return node
    with originating_from(node.origins):
        return make_node(node.op, operands, node.attributes)


def rewrite(
    roots: Iterable[Node],
    rule: Callable[[Node], Node | None],
    given: dict[Node, Node] | None = None,
    places: Mapping[Node, tuple[Place, ...]] | None = None,
) -> tuple[Node, ...]:
    """The roots with `rule` applied bottom-up: it sees each node over rewritten operands; None keeps the node.

    `given` maps nodes to what stands for them from the start; the walk does not look below those. `places` tells the
    lines of the nodes in the function that they are of.
    """
    roots = tuple(roots)
    done = exchange(roots, rule, given, places)
    return tuple(done[root] for root in roots)


def exchange(
    roots: Iterable[Node],
    rule: Callable[[Node], Node | None],
    given: dict[Node, Node] | None = None,
    places: Mapping[Node, tuple[Place, ...]] | None = None,
) -> dict[Node, Node]:
    """What `rewrite` puts in place of every node."""
    done: dict[Node, Node] = {} if given is None else dict(given)
    with originating_from(()) as current:
        for node in toposort(roots, stop=done.__contains__):
            if node in done:
                continue
            origins = node.origins if places is None or node.located else places.get(node, node.origins)
            current.move_to(origins)
            rebuilt = _over(node, done) if node.operands else node
            replaced = rule(rebuilt) if rule is not keep else None
            if replaced is not None and replaced is not rebuilt:
                add_origins(replaced, origins)
                rebuilt = replaced
            done[node] = rebuilt
    return done


def _over(node: Node, done: dict[Node, Node]) -> Node:
    operands = tuple([done[operand] for operand in node.operands])
    # Nodes are equal when they are the same.
    return node if operands == node.operands else make_node(node.op, operands, node.attributes)


def substitute(
    roots: Iterable[Node], given: dict[Node, Node], places: Mapping[Node, tuple[Place, ...]] | None = None
) -> tuple[Node, ...]:
    """The roots with nodes exchanged."""
    return rewrite(roots, keep, given, places)


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


def may_hold_functions(node: Node) -> bool:
    """Whether it is worth looking for functions among a node's attributes: most have numbers there."""
    for _, value in node.attributes:
        kind = value.__class__
        if kind is Function or (kind is tuple and value and value[0].__class__ is not int):  # type: ignore[index]
            return True
    return False


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
        holders = [node for node in nodes_of(function) if node.attributes and may_hold_functions(node)]
        found = tuple(dict.fromkeys(inner for node in holders for inner in attribute_functions(node)))
        function.__dict__["_functions"] = found
    return found


def reachable_functions(roots: Iterable[Function]) -> list[Function]:
    """The functions and all that they use, users last."""
    roots = list(roots)
    if len(roots) == 1 and not functions_in(roots[0]):
        return roots
    order: list[Function] = []
    seen: set[Function] = set()
    pending: list[tuple[Function, bool]] = [(root, False) for root in reversed(roots)]
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
