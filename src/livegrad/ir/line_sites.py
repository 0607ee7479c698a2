"""Replaces the source lines of checks by indices (marks), so that functions that differ only in lines share code.

Backends call `mark_locations` before they look up compiled code and store the lines beside it. `resolve_location` puts
the line into an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from livegrad.diagnostics import LivegradError, Mark, SourceLocation
from livegrad.ir.node import Function, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.walk import exchanged_functions, functions_in, nodes_of, ops_in, reachable_functions

SourceLocations = tuple[SourceLocation | None, ...]  # by mark number


def mark_locations(function: Function) -> tuple[Function, SourceLocations]:
    """Replaces each line that an error may name by a mark; returns the function and the lines by mark number.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda a, b: a // b, lg.i32, lg.i32)
    >>> g = lg.ir.trace(lambda a, b:
    ...     a // b, lg.i32, lg.i32)
    >>> f == g, mark_locations(f)[0] == mark_locations(g)[0]
    (False, True)
    """
    marked_function = function.__dict__.get("_marked")
    if marked_function is None:
        lines = check_lines(function)
        marks = {line: Mark(index) for index, line in enumerate(lines)}
        marked_function = replace_locations(function, marks) if lines else function, lines
        function.__dict__["_marked"] = marked_function
    return marked_function


def equal_but_for_lines(first: Function, second: Function) -> bool:
    """Whether two functions are equal except for their source locations.

    >>> import livegrad as lg
    >>> f = lg.ir.trace(lambda a, b: a // b, lg.i32, lg.i32)
    >>> equal_but_for_lines(lg.ir.parse_function(lg.ir.print_function(f)), f)
    True
    """
    first, second = (replace_locations(f, dict.fromkeys(check_lines(f))) for f in (first, second))
    return first == second


def have_same_locations(first: Function, second: Function) -> bool:
    """Whether errors in two equal functions have the same text: the functions have the same name and source lines.

    >>> import livegrad as lg
    >>> f, g = lg.ir.trace(lambda x: x + 1.0, lg.f32, name="f"), lg.ir.trace(lambda x: x + 1.0, lg.f32, name="g")
    >>> f == g, have_same_locations(f, g)
    (True, False)
    """
    return first is second or (first.name == second.name and first.source_locations == second.source_locations)


def check_lines(function: Function) -> SourceLocations:
    """The source lines of all nodes that may fail, in a function and its inner functions, in structural order."""
    functions = [inner for inner in reachable_functions([function]) if has_checks(inner)]
    failing = [node for inner in functions for node in nodes_of(inner) if node.may_fail]
    return tuple(dict.fromkeys([node.origin for node in failing]))


def has_checks(function: Function) -> bool:
    """Whether a function has ops that may fail. If not, its nodes need not be searched."""
    return any(op.checked for op in ops_in(function))


def replace_locations(
    function: Function, replacements: Mapping[SourceLocation | None, SourceLocation | None]
) -> Function:
    """Replaces the source locations of nodes that may fail, in a function and its inner functions."""
    relocated: dict[Function, Function] = {}
    for inner in reachable_functions([function]):
        relocated[inner] = _replace_own_locations(inner, replacements, relocated)
    return relocated[function]


def _replace_own_locations(
    function: Function,
    replacements: Mapping[SourceLocation | None, SourceLocation | None],
    functions: Mapping[Function, Function],
) -> Function:
    order = nodes_of(function)
    if not (has_checks(function) and any(node.may_fail for node in order)) and not any(
        functions[used] is not used for used in functions_in(function)
    ):
        return function
    done: dict[Node, Node] = {}
    with originating_from(()) as ambient_location:
        for node in order:
            operands = tuple([done[operand] for operand in node.operands])
            attributes = exchanged_functions(node.attributes, functions)
            line = replacements.get(node.origin, node.origin) if node.may_fail else node.origin
            if line is node.origin and operands == node.operands and attributes is node.attributes:
                done[node] = node
                continue
            ambient_location.move_to(() if line is None else (line,))
            done[node] = make_node(node.op, operands, attributes)
    return Function(function.name, function.parameters, tuple(done[result] for result in function.results))


def resolve_location(error: LivegradError, locations: SourceLocations) -> None:
    """Replaces a mark in an error by its source line. A mark beyond `locations` belongs to an enclosing function.

    >>> from livegrad.diagnostics import TextOrigin
    >>> error = LivegradError("no such element", where=Mark(0))
    >>> resolve_location(error, (TextOrigin("part.py", 3),))
    >>> str(error)
    'no such element (part.py:3)'
    """
    if isinstance(error.where, Mark) and error.where.number < len(locations):
        error.move_to(locations[error.where.number])
