"""Scaled dot-product attention for `lg.nn`: two matrix products with a masked softmax between them."""

from __future__ import annotations

import math
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Size
from livegrad.ir.node import Node
from livegrad.ops.comparison import equal, is_finite, less_equal
from livegrad.ops.elementwise import detach, select
from livegrad.ops.linalg import matmul, swap_last
from livegrad.ops.movement import broadcast_to, index_along
from livegrad.ops.reduction import reduce, spread_back
from livegrad.ops.rules import filled, zero
from livegrad.ops.transcendental import exp
from livegrad.tensors.errors import ShapeError
from livegrad.tensors.handle import Tensor, node_of, wrap
from livegrad.tensors.operands import as_type, element_of, promote_operands, require_kinds
from livegrad.tensors.products import shape_of_node


def attention(
    query: Any,
    key: Any,
    value: Any,
    /,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention: `softmax(query @ keyᵀ * scale) @ value` over the last two dimensions.

    `mask` is True where a query may attend to a key, or contains numbers that are added to the scores. With `causal`,
    each query attends to its own position and earlier ones, aligned at the end. A query without any keys gives zeros.
    The default scale is 1/sqrt(width).

    >>> import livegrad as lg
    >>> q, k = lg.ones((2, 5, 8)), lg.ones((2, 7, 8))
    >>> lg.nn.attention(q, k, lg.ones((2, 7, 3))).shape
    (2, 5, 3)
    """
    q, k, v = promote_operands("attention", query, key, value)
    shapes = [shape_of_node(node) for node in (q, k, v)]
    if any(len(shape) < 2 for shape in shapes) or shapes[0][-1] != shapes[1][-1] or shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(
            "`attention` takes queries [..., n, width], keys [..., m, width] and values [..., m, any]",
            where=caller_origin(),
            found=" and ".join(map(str, shapes)),
        )
    require_kinds(q, "attention", "float")
    # Scaled after the product, where the scaling fuses into the softmax kernel.
    scores = matmul(q, swap_last(k)) * (_default_scale(shapes[0][-1]) if scale is None else float(scale))
    allowed = _causal_mask(shape_of_node(scores)) if causal else None
    if mask is not None:
        mask_node = _broadcast_mask(mask, shape_of_node(scores))
        if element_of(mask_node).kind == "bool":
            allowed = mask_node if allowed is None else allowed & mask_node
        else:
            scores = scores + as_type(mask_node, element_of(scores))
    return wrap(matmul(_attention_weights(scores, allowed), v))


def _default_scale(width: Size) -> float:
    if not isinstance(width, int):
        raise UsageError("`attention` needs a scale for a symbolic width", where=caller_origin(), help="pass scale=...")
    return 1.0 / math.sqrt(max(1, width))


def _causal_mask(shape: tuple[Size, ...]) -> Node:
    """Returns a mask that is True for keys up to the position of the query; the last query aligns with the last key."""
    rank = len(shape)
    offset = shape[-1] - shape[-2]
    if not isinstance(offset, int):
        raise UsageError(
            "causal `attention` needs a static difference between the numbers of keys and queries",
            where=caller_origin(),
            found=f"{shape[-1]} keys and {shape[-2]} queries",
        )
    return less_equal(index_along(shape, rank - 1), index_along(shape, rank - 2) + offset)


def _broadcast_mask(mask: Any, shape: tuple[Size, ...]) -> Node:
    node = node_of(mask, "attention")
    mask_shape = shape_of_node(node)
    if len(mask_shape) > len(shape) or any(
        a not in (1, b) for a, b in zip(reversed(mask_shape), reversed(shape), strict=False)
    ):
        raise ShapeError(
            f"`attention` cannot broadcast a mask of shape {mask_shape} over {shape}",
            where=caller_origin(),
            help="the scores are [..., queries, keys]",
        )
    return broadcast_to(node, shape)


def _attention_weights(scores: Node, allowed: Node | None) -> Node:
    """Computes the softmax of scores over the keys; the weights are zero where no key is allowed."""
    shape = shape_of_node(scores)
    axes = (len(shape) - 1,)
    if shape[-1] == 0:
        return scores
    if allowed is not None:
        scores = select(allowed, scores, filled(-math.inf, scores.type))
    maxima = detach(reduce(scores, kind="max", axes=axes))
    shift = select(is_finite(maxima), maxima, zero(maxima.type))
    exponentials = exp(scores - spread_back(shift, shape, axes))
    total = reduce(exponentials, kind="sum", axes=axes)
    divisor = select(equal(total, zero(total.type)), filled(1.0, total.type), total)
    return exponentials / spread_back(divisor, shape, axes)
