"""Orders the nodes that an output depends on topologically. Errors for unknown names and cycles show the path."""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.contexts.declare import NodeDeclaration
from livegrad.contexts.errors import ContextError
from livegrad.diagnostics import caller_origin


def order_nodes(nodes: Mapping[str, NodeDeclaration], output: str) -> list[NodeDeclaration]:
    """Every node that the output needs, each after its inputs. It is iterative, so depth is unlimited."""
    if output not in nodes:
        raise _unknown_node_error(output, None, nodes)
    order: list[NodeDeclaration] = []
    done: set[str] = set()
    open_nodes: dict[str, None] = {}  # the path from the output to the current node
    pending: list[tuple[str, bool]] = [(output, False)]
    while pending:
        name, inputs_are_done = pending.pop()
        if inputs_are_done:
            del open_nodes[name]
            done.add(name)
            order.append(nodes[name])
            continue
        if name in done:
            continue
        if name in open_nodes:
            raise _cycle_error(list(open_nodes), nodes[name])
        node = nodes[name]
        open_nodes[name] = None
        pending.append((name, True))
        for edge in reversed(node.inputs):
            if edge.source in done:
                continue
            if edge.source not in nodes:
                raise _unknown_node_error(edge.source, node, nodes)
            pending.append((edge.source, False))
    return order


def _unknown_node_error(name: str, user: NodeDeclaration | None, nodes: Mapping[str, NodeDeclaration]) -> ContextError:
    what = f"there is no node `{name}`" + ("" if user is None else f", which is an input of `{user.name}`")
    names = ", ".join(sorted(nodes)[:8]) or "none"
    return ContextError(what, where=user.origin if user else caller_origin(), expected=f"one of {names}")


def _cycle_error(path: list[str], node: NodeDeclaration) -> ContextError:
    names = [*path[path.index(node.name) :], node.name]
    return ContextError(
        f"node `{node.name}` needs its own result",
        where=node.origin,
        found=" → ".join(f"`{name}`" for name in names),
        help="a context graph cannot have cycles: keep state outside and pass it in as a feature",
    )
