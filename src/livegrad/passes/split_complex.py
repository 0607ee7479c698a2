"""The `split_complex` pass: arithmetic on complex numbers becomes arithmetic on their real and imaginary parts.

For the CPU and for CUDA. Arithmetic and movement of complex tensors become those of real tensors, which kernels can
compute. Loops and branches carry both parts, and so do maps if all ops of their functions have rules. In memory,
complex numbers stay pairs, and loads and stores view them as such. NumPy, or a library of the device, computes ops
without a rule (transforms, decompositions, inverse trigonometric functions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from livegrad.ir.function import make_function, trace
from livegrad.ir.leaves import constant, constant_op, input_node
from livegrad.ir.node import Function, Key, Node, make_node
from livegrad.ir.source_lines import originating_from
from livegrad.ir.types import Scalar, Tensor, Type, Vector, inner_types, scalar_of, shape_of
from livegrad.ir.walk import exchanged_functions, nodes_of, reachable_functions
from livegrad.ops.aggregate import get, make, make_tuple
from livegrad.ops.assignment import assign
from livegrad.ops.comparison import equal, not_equal
from livegrad.ops.control import check, cond, for_loop, switch, while_loop
from livegrad.ops.conversion import cast, complex_parts, conj, from_parts, imag, make_complex, real
from livegrad.ops.convolution import convolve
from livegrad.ops.elementwise import abs, add, div, mul, neg, select, sub
from livegrad.ops.indexing import lookup, scatter_add
from livegrad.ops.linalg import matmul
from livegrad.ops.maps import make_map, map_
from livegrad.ops.movement import concatenate, reshape, sizes, slice_, squeezed_axes
from livegrad.ops.reduction import reduce
from livegrad.ops.rules import zero
from livegrad.ops.transcendental import hypot
from livegrad.passes.complex_functions import FUNCTIONS, Parts
from livegrad.passes.complex_matmuls import (
    copies_left,
    is_multiplied_by_parts,
    multiply_pairs,
    multiply_parts,
    multiply_rows,
)
from livegrad.passes.regions import region_of

_MOVES = ("broadcast", "permute", "slice", "flip", "concatenate", "pad")
_REGIONS = (for_loop, while_loop, cond, switch)
_INDEXING = (lookup, assign, scatter_add)


def split_complex(function: Function) -> Function:
    """Splits complex arithmetic into real and imaginary parts; returns functions without complex numbers unchanged."""
    if not _holds_complex(function):
        return function
    splitter = _ComplexSplitter()
    for node in nodes_of(function):
        splitter.visit(node)
    results = [splitter.whole(node) for node in function.results]
    return make_function(function.name, list(function.parameters), results)


def _split_signature(function: Function) -> Function:
    """Splits a function, with two real parameters or results for each complex one."""
    splitter = _ComplexSplitter()
    inputs: list[Node] = []
    for parameter in function.parameters:
        parts = [input_node(Key("part"), type) for type in _part_types(parameter.type)]
        splitter.set_replacement(parameter, parts)
        inputs += parts
    for node in nodes_of(function):
        splitter.visit(node)
    results = [part for result in function.results for part in splitter.leaves(result)]
    return make_function(function.name, inputs, results)


def _part_types(type: Type) -> tuple[Type, ...]:
    """The types that replace a type: two real ones for a complex type, else the type itself."""
    match type:
        case Scalar(kind="complex"):
            return (type.real, type.real)
        case Tensor(element=Scalar(kind="complex") as element, shape=shape):
            return (Tensor(element.real, shape),) * 2
    return (type,)


class _ComplexSplitter:
    """Rewrites nodes: each becomes parts, a whole value, or both, as its users need it."""

    def __init__(self) -> None:
        self._parts: dict[Node, Parts] = {}
        self._values: dict[Node, Node] = {}
        self._members: dict[Node, list[list[Node]]] = {}  # of loops and branches: the value or parts of each result

    def set_replacement(self, node: Node, leaves: list[Node]) -> None:
        """Sets the replacement of a node: a value, or two parts."""
        if len(leaves) == 2:
            self._parts[node] = Parts(*leaves)
        else:
            (self._values[node],) = leaves

    def leaves(self, node: Node) -> list[Node]:
        return [*self.parts(node)] if _is_complex(node) else [self.whole(node)]

    def visit(self, node: Node) -> None:
        if node in self._parts or node in self._values:
            return
        with originating_from(node.origins):
            if (node.op in _REGIONS or node.op is map_) and any(map(_holds_complex, node.functions)):
                exchange = {function: _split_signature(function) for function in node.functions}
                if node.op is not map_ or not any(map(_holds_complex, exchange.values())):
                    self._visit_region(node, exchange)
                    return
            if node.op is get and node.operands[0] in self._members:
                self.set_replacement(node, self._members[node.operands[0]][node.attribute("index")])
                return
            if node.op in _INDEXING and node.operands[0] in self._parts:
                self._parts[node] = self._index_parts(node)
                return
            if node.op is convolve and _is_complex(node) and 0 not in (*sizes(node), *sizes(node.operands[0])):
                self._parts[node] = self._convolve(node)
                return
            if node.op is matmul and _is_complex(node):
                self._visit_matmul(node)
                return
            rule = _find_rule(node)
            if node.op is reshape and _is_complex(node) and rule is None:
                pairs = self._pairs(node.operands[0])
                self._values[node] = from_parts(reshape(pairs, shape=(*shape_of(node.type), 2)))
                return
            if rule is None:
                operands = tuple(map(self.whole, node.operands))
                changed = any(new is not old for new, old in zip(operands, node.operands, strict=True))
                self._values[node] = make_node(node.op, operands, node.attributes) if changed else node
                return
            parts = rule(node, [self.parts(o) if _is_complex(o) else self.whole(o) for o in node.operands])
            if isinstance(parts, Parts):
                self._parts[node] = parts
            else:
                self._values[node] = parts

    def _visit_region(self, node: Node, exchange: dict[Function, Function]) -> None:
        """Rewrites a loop, branch or map to functions that take and return both parts of complex numbers."""
        region = region_of(node)
        assert region is not None
        attributes = dict(exchanged_functions(node.attributes, exchange))  # type: ignore[arg-type]
        types = region.functions[-1].result_types
        counts = [len(_part_types(type)) for type in types]
        if region.is_loop:
            attributes["carried"] = sum(counts)
        if node.op is map_:
            part_counts = [len(_part_types(type)) for type in region.functions[0].parameter_types]
            for name, repeats in (("lifted", part_counts), ("summed", counts)):
                flags = zip(node.attribute(name), repeats, strict=True)
                attributes[name] = tuple([flag for flag, count in flags for _ in range(count)])
        arguments = [part for argument in region.arguments for part in self.leaves(argument)]
        rewritten = make_node(node.op, (*map(self.whole, region.leading), *arguments), tuple(attributes.items()))
        is_tuple = region.is_loop or sum(counts) != 1
        members = iter([get(rewritten, index=index) for index in range(sum(counts))] if is_tuple else [rewritten])
        results = [[next(members) for _ in range(count)] for count in counts]
        if region.packed:
            self._members[node] = results
        else:
            self.set_replacement(node, results[0])

    def _visit_matmul(self, node: Node) -> None:
        if 0 in (*sizes(node.operands[0]), *sizes(node)):
            self._values[node] = make_node(node.op, tuple(map(self.whole, node.operands)), node.attributes)
            return
        left, right = node.operands
        if is_multiplied_by_parts(node):
            self._parts[node] = Parts(*multiply_parts(self.parts(left), self.parts(right)))
        elif copies_left(node):
            self._parts[node] = Parts(*multiply_rows(self.parts(left), self._pairs(right)))
        else:
            parts = self.parts(right)
            rotated = _combine_parts(Parts(-parts.im, parts.re))
            self._values[node] = from_parts(multiply_pairs(self._pairs(left), self._pairs(right), rotated))

    def _convolve(self, node: Node) -> Parts:
        """Convolves the parts of the image, joined to one batch, with each part of the kernels."""
        image, kernels = (self.parts(operand) for operand in node.operands)
        image_parts = concatenate(*image, axis=0)
        batch, *shape = sizes(node)
        halves: list[list[Node]] = []
        for part in kernels:
            result, ones = convolve(image_parts, part, **dict(node.attributes)), (1,) * (1 + len(shape))
            starts = [(start, *[0] * len(shape)) for start in (0, batch)]
            halves.append([slice_(result, start=start, size=(batch, *shape), step=ones) for start in starts])
        (re_re, im_re), (re_im, im_im) = halves
        return Parts(re_re - im_im, re_im + im_re)

    def _index_parts(self, node: Node) -> Parts:
        """Reads or writes both parts of a tensor by index."""
        tensor, *arguments = node.operands
        sides = zip(*[self.parts(o) if _is_complex(o) else [self.whole(o)] * 2 for o in arguments], strict=True)
        part_arguments = list(sides) or [(), ()]
        return Parts(*[node.op(part, *side) for part, side in zip(self._parts[tensor], part_arguments, strict=True)])

    def whole(self, node: Node) -> Node:
        """The replacement of a node as one value; combines the parts of complex numbers."""
        if node in self._members and node not in self._values:
            members = [get(node, index=index) for index in range(len(self._members[node]))]
            for member in members:
                self.visit(member)
            self._values[node] = make_tuple(*map(self.whole, members))
        if node not in self._values:
            parts = self._parts[node]
            if node.op is constant_op:
                self._values[node] = node
            elif shape_of(node.type):
                self._values[node] = from_parts(_combine_parts(parts))
            else:
                self._values[node] = make_complex(*parts)
        return self._values[node]

    def parts(self, node: Node) -> Parts:
        if node not in self._parts:
            if shape_of(node.type):
                pairs = self._pairs(node)
                self._parts[node] = Parts(_component(pairs, 0), _component(pairs, 1))
            else:
                value = self._values[node]
                self._parts[node] = Parts(real(value), imag(value))
        return self._parts[node]

    def _pairs(self, node: Node) -> Node:
        """A complex tensor as a real tensor of pairs, which is its layout in memory."""
        value = self.whole(node)
        return value.operands[0] if value.op is from_parts else complex_parts(value)


def _combine_parts(parts: Parts) -> Node:
    """Combines two parts into a real tensor of pairs."""
    type = scalar_of(parts.re.type)
    assert type is not None
    return make_map(_pairing_function(type), *parts)


def _is_complex(node: Node) -> bool:
    scalar = scalar_of(node.type) if isinstance(node.type, Scalar | Tensor) else None
    return scalar is not None and scalar.kind == "complex"


@lru_cache(maxsize=4096)
def _holds_complex(function: Function) -> bool:
    """Whether a function, or a function that it calls, contains complex numbers."""
    return any(
        isinstance(type, Scalar) and type.kind == "complex"
        for inner in reachable_functions([function])
        for node in nodes_of(inner)
        for type in inner_types(node.type)
    )


@lru_cache(maxsize=8)
def _pairing_function(type: Scalar) -> Function:
    return trace(lambda re, im: make(re, im, type=Vector(type, 2)), type, type)


def _component(pairs: Node, index: int) -> Node:
    shape = shape_of(pairs.type)
    last = len(shape) - 1
    start, size = (*[0] * last, index), (*shape[:-1], 1)
    return reshape(slice_(pairs, start=start, size=size, step=(1,) * len(shape)), shape=shape[:-1])


def has_rule_or_is_real(node: Node) -> bool:
    """Whether a node of a map's function needs no complex arithmetic, or has a rule for it."""
    if not any(map(_is_complex, (node, *node.operands))) or node.op in (*_REGIONS, *_INDEXING, get, make, check):
        return True
    return _find_rule(node) is not None or node.op in (cast, make_complex)


# --- rules ------------------------------------------------------------------------------------------------------------

Operand = Parts | Node
Rule = Callable[[Node, list[Operand]], Parts | Node]


def _find_rule(node: Node) -> Rule | None:
    """The rule that computes a node from parts; None if there is none, and the node uses whole complex values."""
    if not (_is_complex(node) or any(map(_is_complex, node.operands))) or not isinstance(node.type, Scalar | Tensor):
        return None
    if node.op in (constant_op, cast, make_complex) and not _is_complex(node):
        return None
    if node.op is reshape:
        return None if squeezed_axes(sizes(node.operands[0]), sizes(node)) is None else _apply_to_both
    if node.op.name in _MOVES:
        return _apply_to_both
    if node.op is reduce:
        return _apply_to_both if node.attribute("kind") == "sum" else None
    return _RULES.get(node.op)


def _apply_to_both(node: Node, operands: list[Operand]) -> Parts:
    """Applies the same op to both parts: movement, sums, negation, selection."""
    sides = zip(*[operand if isinstance(operand, Parts) else (operand, operand) for operand in operands], strict=True)
    return Parts(*[make_node(node.op, side, node.attributes) for side in sides])


def _constant(node: Node, operands: list[Operand]) -> Parts:
    value, scalar = complex(node.attribute("value")), scalar_of(node.type)
    assert scalar is not None
    return Parts(constant(value.real, scalar.real), constant(value.imag, scalar.real))


def _cast(node: Node, operands: list[Operand]) -> Parts:
    (x,) = operands
    scalar = scalar_of(node.type)
    assert scalar is not None
    if isinstance(x, Parts):
        return Parts(cast(x.re, type=scalar.real), cast(x.im, type=scalar.real))
    re = cast(x, type=scalar.real)
    return Parts(re, zero(re.type))


def _product(a: Parts, b: Parts) -> Parts:
    return Parts(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def _quotient(a: Parts, b: Parts) -> Parts:
    """Divides by the larger part of the divisor to avoid overflow: Smith, "Algorithm 116" (1962), as in NumPy."""
    size_re, size_im = abs(b.re), abs(b.im)
    by_re = size_re >= size_im
    large, small = select(by_re, b.re, b.im), select(by_re, b.im, b.re)
    ratio = small / large
    scale = 1.0 / _plus(large, small * ratio)
    first, second = select(by_re, a.re, a.im), select(by_re, a.im, a.re)
    re = _plus(first, second * ratio) * scale
    im = _plus(second, -(first * ratio)) * scale
    by_zero = equal(size_re, 0.0) & equal(size_im, 0.0)
    quotient = Parts(re, select(by_re, im, -im))
    return Parts(select(by_zero, a.re / size_re, quotient.re), select(by_zero, a.im / size_re, quotient.im))


def _plus(a: Node, product: Node) -> Node:
    """A sum without fused multiply-add: fused, z / z would have an imaginary part of 1e-9, where NumPy returns zero."""
    return a + product if product.op is neg else a - (-product)


def _binary_rule(rule: Callable[[Parts, Parts], Parts | Node]) -> Rule:
    def apply(node: Node, operands: list[Operand]) -> Parts | Node:
        a, b = operands
        assert isinstance(a, Parts)
        assert isinstance(b, Parts)
        return rule(a, b)

    return apply


def _unary_rule(rule: Callable[[Parts], Parts | Node]) -> Rule:
    def apply(node: Node, operands: list[Operand]) -> Parts | Node:
        (a,) = operands
        assert isinstance(a, Parts)
        return rule(a)

    return apply


_RULES: dict[object, Rule] = {
    constant_op: _constant,
    cast: _cast,
    add: _apply_to_both,
    sub: _apply_to_both,
    neg: _apply_to_both,
    select: _apply_to_both,
    mul: _binary_rule(_product),
    div: _binary_rule(_quotient),
    equal: _binary_rule(lambda a, b: equal(a.re, b.re) & equal(a.im, b.im)),
    not_equal: _binary_rule(lambda a, b: not_equal(a.re, b.re) | not_equal(a.im, b.im)),
    conj: _unary_rule(lambda a: Parts(a.re, -a.im)),
    real: _unary_rule(lambda a: a.re),
    imag: _unary_rule(lambda a: a.im),
    **{op: _unary_rule(rule) for op, rule in FUNCTIONS.items()},
    abs: _unary_rule(lambda a: hypot(a.re, a.im)),
    make_complex: lambda node, operands: Parts(*operands),  # type: ignore[arg-type]
}
