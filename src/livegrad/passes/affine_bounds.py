"""Affine bounds analysis of integers: each value is an affine form over symbols with constant and affine bounds.

A loop index has an affine bound too, its number of iterations: `for j in range(i)` gives j <= i - 1. Used for the loops
of kernels (bounds checks, threads), the lengths of tapes, and indices in captured functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from livegrad.ir.node import Function, Node
from livegrad.ir.types import Scalar, Tensor, Type, i32, i64
from livegrad.ops.affine import AffineForm, linear_form, same_integer
from livegrad.ops.control import for_loop
from livegrad.passes.regions import Region

_MAX_SYMBOLS = 8  # in a form for which all bounds of each symbol are tried: the search is exponential
_MAX_DEPTH = 32  # of expressions that are analysed
_LARGE = 1 << 31  # ranges that reach this far count as unbounded

Range = tuple[int, int]  # inclusive at both ends
Ranges = Mapping[Node, Range]


@dataclass(frozen=True, eq=False)
class Symbol:
    """An integer from `low` to `high` that is at most each form in `at_most`.

    These forms refer only to symbols of lower `depth`.
    """

    low: int
    high: int
    depth: int = 0
    at_most: tuple[Form, ...] = ()


Form = AffineForm[Symbol]


def depth_of(form: Form) -> int:
    return max([symbol.depth for symbol in form.coefficients], default=0)


def least(form: Form) -> int:
    """The best lower bound of a form that follows from the bounds of its symbols."""
    if form.is_constant:
        return form.constant
    symbol, coefficient = max(form.coefficients.items(), key=lambda term: term[0].depth)
    bounds = [Form(symbol.low if coefficient > 0 else symbol.high)]
    if coefficient < 0 and len(form.coefficients) <= _MAX_SYMBOLS:
        bounds += symbol.at_most
    other_terms = form.plus(Form.of(symbol), -coefficient)
    return max(least(other_terms.plus(bound, coefficient)) for bound in bounds)


def greatest(form: Form) -> int:
    """The best upper bound of a form that follows from the bounds of its symbols."""
    return -least(form.times(-1))


def index_below(iterations: Form) -> Form:
    """The index of a loop with this number of iterations."""
    last = iterations.plus(Form(-1))
    return Form.of(Symbol(0, max(0, greatest(last)), depth_of(last) + 1, (last,)))


def between(low: int, high: int, at_most: Sequence[Form] = ()) -> Form:
    """A new integer with these bounds."""
    if low == high:
        return Form(low)
    depth = max(map(depth_of, at_most), default=0) + 1
    return Form.of(Symbol(low, high, depth, tuple(at_most)))


def any_number(type: Type) -> Form | None:
    """A new integer that may be any value of its type; None for other types."""
    return between(*_limits(type)) if type in (i32, i64) else None


def _limits(type: Type) -> Range:
    assert isinstance(type, Scalar)
    match type.kind:
        case "bool":
            return 0, 1
        case "unsigned":
            return 0, (1 << type.bits) - 1
    return -(1 << type.bits - 1), (1 << type.bits - 1) - 1


# --- rules of ops ----------------------------------------------------------------------------------------------------


def form_of(node: Node, operands: Sequence[Form | None]) -> Form | None:
    """The form of a signed integer, from the forms of its operands; None for other types.

    Forms ignore overflow, so a result that may overflow becomes any number of its type.
    """
    scalar = _integer_type(node.type)
    if scalar is None:
        return None
    form = _form(node, operands)
    lowest, highest = _limits(scalar)
    return form if form is not None and lowest <= least(form) and greatest(form) <= highest else any_number(scalar)


def _integer_type(type: Type) -> Scalar | None:
    """The scalar type of a signed integer or of a rank-0 tensor of one; None for other types."""
    scalar = type.element if isinstance(type, Tensor) and not type.shape else type
    return scalar if isinstance(scalar, Scalar) and scalar in (i32, i64) else None


def _form(node: Node, operands: Sequence[Form | None]) -> Form | None:
    form = linear_form(node, operands)
    if form is not None:
        return form
    match node.op.name, operands:
        case "cast", [None] if _is_whole(node.operands[0].type):
            return between(*_limits(node.operands[0].type))
        case _, [AffineForm() as form, *_] if same_integer(node) is not None:
            return form
        case "mul", [AffineForm() as a, AffineForm() as b]:
            ends = [x * y for x in (least(a), greatest(a)) for y in (least(b), greatest(b))]
            return between(min(ends), max(ends))
        case "select", [_, AffineForm() as a, AffineForm() as b]:
            return between(min(least(a), least(b)), max(greatest(a), greatest(b)))
        case (("min" | "minimum"), [AffineForm() as a, AffineForm() as b]):
            return between(min(least(a), least(b)), min(greatest(a), greatest(b)), (a, b))
        case (("max" | "maximum"), [AffineForm() as a, AffineForm() as b]):
            return between(max(least(a), least(b)), max(greatest(a), greatest(b)))
        case "floor_div", [AffineForm() as a, AffineForm() as b] if least(b) > 0:
            return _quotient(a, b)
        case "mod", [AffineForm() as a, AffineForm() as b] if least(b) > 0:
            return _remainder(a, b)
    return None


def _is_whole(type: Type) -> bool:
    return isinstance(type, Scalar) and type.kind in ("bool", "unsigned", "signed")


def _quotient(form: Form, divisor: Form) -> Form:
    """The quotient by a positive number, rounded down."""
    ends = [x // y for x in (least(form), greatest(form)) for y in (least(divisor), greatest(divisor))]
    return between(min(ends), max(ends), (form,) if least(form) >= 0 else ())


def _remainder(form: Form, divisor: Form) -> Form:
    """The remainder by a positive number, which is never negative."""
    low, high = least(form), greatest(form)
    if divisor.is_constant and low // divisor.constant == high // divisor.constant:
        return form.plus(divisor, -(low // divisor.constant))
    if low >= 0 and greatest(form.plus(divisor, -1)) < 0:
        return form
    bounds = () if divisor.is_constant else (divisor.plus(Form(-1)),)
    return between(0, greatest(divisor) - 1, (*bounds, form) if low >= 0 else bounds)


# --- inside loops and branches ---------------------------------------------------------------------------------------


def forms_inside(region: Region, operands: Sequence[Form | None]) -> tuple[Form | None, list[Form | None]]:
    """The forms inside a loop or branch, from those of its operands: the index (None for branches) and the arguments.

    A carried value may be any number of its type.
    """
    arguments = list(operands[len(region.leading) :])
    if not region.is_loop:
        return None, arguments
    carried = region.node.attribute("carried")
    arguments[:carried] = [any_number(operand.type) for operand in region.arguments[:carried]]
    iterations = operands[0] if region.node.op is for_loop else None
    any_index = any_number(region.functions[-1].parameters[0].type)
    return any_index if iterations is None else index_below(iterations), arguments


def range_of(value: Node, ranges: Ranges) -> Range | None:
    """The range of an integer, from the ranges of nodes that it is computed from; None if it is unbounded.

    >>> from livegrad.ir.function import trace
    >>> f = trace(lambda i: 2 * i + 1, i64)
    >>> range_of(f.results[0], {f.parameters[0]: (0, 9)})
    (1, 19)
    """
    form = _form_from_ranges(value, ranges, {}, _MAX_DEPTH)
    if form is None or least(form) <= -_LARGE or greatest(form) >= _LARGE:
        return None
    return least(form), greatest(form)


def _form_from_ranges(node: Node, ranges: Ranges, forms: dict[Node, Form | None], depth: int) -> Form | None:
    if node not in forms:
        if node in ranges:
            forms[node] = between(*ranges[node])
        elif depth and _integer_type(node.type) is not None:
            operands = [_form_from_ranges(operand, ranges, forms, depth - 1) for operand in node.operands]
            forms[node] = form_of(node, operands)
        else:
            forms[node] = any_number(node.type)
    return forms[node]


def ranges_inside(loop: Node, iterations: Range, around: Ranges) -> Ranges:
    """The ranges of the index and the captures of a `for_loop`, by parameter of its body."""
    assert loop.op is for_loop
    body: Function = loop.attribute("body")
    carried = loop.attribute("carried")
    inside: dict[Node, Range] = {body.parameters[0]: (0, max(0, iterations[1] - 1))}
    captures = zip(body.parameters[1 + carried :], loop.operands[1 + carried :], strict=True)
    for parameter, operand in captures:
        operand_range = range_of(operand, around)
        if operand_range is not None:
            inside[parameter] = operand_range
    return inside
