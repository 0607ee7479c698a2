"""The array namespaces of livegrad and JAX, with the functions that the two call differently under one name.

Each function is the one that a user of the library would take: `lg.nn.attention`, `jax.nn.dot_product_attention` …"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from benchmarks.loops.program import Library, jax, jnp, lax, lg

Tree = Any
LEARNING_RATE = 1e-3
DECAY, SQUARE_DECAY, EPSILON, WEIGHT_DECAY = 0.9, 0.999, 1e-8, 0.01


class Namespace:
    """A module of array functions with some of its own."""

    def __init__(self, module: Any, functions: Mapping[str, Any]) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


# --- livegrad --------------------------------------------------------------------------------------------------------


def livegrad_attention(query: Any, key: Any, value: Any, causal: bool = False) -> Any:
    """Of [batch, positions, heads, width]."""
    heads_first = (lg.permute_dims(part, (0, 2, 1, 3)) for part in (query, key, value))
    return lg.permute_dims(lg.nn.attention(*heads_first, causal=causal), (0, 2, 1, 3))


def livegrad_adam(parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
    optimizer = lg.optim.Adam(LEARNING_RATE, (DECAY, SQUARE_DECAY), EPSILON, WEIGHT_DECAY)
    return optimizer.update(parameters, gradients, state)


def livegrad_segment_sum(values: Any, segments: Any, count: int) -> Any:
    return lg.zeros((count, *values.shape[1:]), device=values.device).at[segments].add(values)


def livegrad() -> Namespace:
    return Namespace(
        lg,
        {
            "attention": livegrad_attention,
            "conv": lambda x, kernel: lg.nn.conv(x, kernel, padding="same"),
            "max_pool": lambda x: lg.nn.max_pool(x, 2),
            "adam": livegrad_adam,
            "segment_sum": livegrad_segment_sum,
            "solve_positive": lambda matrix, factor, right: lg.linalg.cho_solve(factor, right),
            "normal": lambda seed, shape: lg.random.normal(lg.random.key(seed), shape),
        },
    )


# --- JAX -------------------------------------------------------------------------------------------------------------


def jax_conv(x: Any, kernel: Any) -> Any:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))


def jax_max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def jax_layer_norm(x: Any, weight: Any = None, bias: Any = None) -> Any:
    normalised = jax.nn.standardize(x, axis=-1, epsilon=1e-5)
    return normalised if weight is None else normalised * weight + bias


def jax_cross_entropy(scores: Any, target: Any) -> Any:
    picked = jnp.take_along_axis(scores, target[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - picked


def jax_adam(parameters: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
    step = state["step"] + 1
    each = jax.tree.map
    mean = each(lambda m, g: DECAY * m + (1.0 - DECAY) * g, state["mean"], gradients)
    square = each(lambda s, g: SQUARE_DECAY * s + (1.0 - SQUARE_DECAY) * g * g, state["square"], gradients)

    def move(p: Any, m: Any, s: Any) -> Any:
        m, s = m / (1.0 - DECAY**step), s / (1.0 - SQUARE_DECAY**step)
        return p - LEARNING_RATE * (m / (jnp.sqrt(s) + EPSILON) + WEIGHT_DECAY * p)

    return each(move, parameters, mean, square), {"step": step, "mean": mean, "square": square}


def jax_neural() -> SimpleNamespace:
    return SimpleNamespace(
        softmax=jax.nn.softmax,
        layer_norm=jax_layer_norm,
        cross_entropy=jax_cross_entropy,
        relu=jax.nn.relu,
        sigmoid=jax.nn.sigmoid,
        silu=jax.nn.silu,
        gelu=lambda x, approximate=False: jax.nn.gelu(x, approximate=approximate),
    )


def jax_namespace() -> Namespace:
    scipy = Library("jax.scipy.linalg")
    return Namespace(
        jnp,
        {
            "nn": jax_neural(),
            "attention": lambda q, k, v, causal=False: jax.nn.dot_product_attention(q, k, v, is_causal=causal),
            "conv": jax_conv,
            "max_pool": jax_max_pool,
            "adam": jax_adam,
            "segment_sum": lambda values, segments, count: jax.ops.segment_sum(values, segments, count),
            "solve_positive": lambda matrix, factor, right: scipy.cho_solve((factor, True), right),
            "normal": lambda seed, shape: jax.random.normal(jax.random.key(seed), shape),
            "scan": lax.scan,
            "fori_loop": lax.fori_loop,
            "grad": jax.grad,
            "value_and_grad": jax.value_and_grad,
        },
    )


NAMESPACES: dict[str, Callable[[], Namespace]] = {"livegrad": livegrad, "jax": jax_namespace}
