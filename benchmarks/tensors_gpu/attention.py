"""Transformers: attention by hand and by the library, a block with its gradients, and a training step of GPT-2."""

from typing import Any

import numpy as np

from benchmarks.tensors_gpu.program import (
    Array,
    Program,
    Sizes,
    Tree,
    adam_state,
    dense,
    integers,
    normal,
    one_size,
    three_sizes,
)

# --- attention -------------------------------------------------------------------------------------------------------


def heads_inputs(s: Sizes) -> tuple[Array, ...]:
    """Query, key and value: [batch, heads, positions, width of a head]."""
    shape = s.batch, s.heads, s.length, s.width // s.heads
    return normal(shape), normal(shape, 1), normal(shape, 2)


def by_hand(xp: Any, query: Any, key: Any, value: Any) -> Any:
    scores = query @ xp.matrix_transpose(key) * query.shape[-1] ** -0.5
    return xp.nn.softmax(scores, axis=-1) @ value


def attention_by_hand(xp: Any, s: Sizes, query: Any, key: Any, value: Any) -> Tree:
    return by_hand(xp, query, key, value)


def attention_by_hand_gradient(xp: Any, s: Sizes, query: Any, key: Any, value: Any) -> Tree:
    def loss(query: Any, key: Any, value: Any) -> Any:
        return xp.sum(by_hand(xp, query, key, value) ** 2)

    return xp.grad(loss, (0, 1, 2))(query, key, value)


def positions_inputs(s: Sizes) -> tuple[Array, ...]:
    """Query, key and value: [batch, positions, heads, width of a head]."""
    shape = s.batch, s.length, s.heads, s.width // s.heads
    return normal(shape), normal(shape, 1), normal(shape, 2)


def attention(xp: Any, s: Sizes, query: Any, key: Any, value: Any) -> Tree:
    return xp.attention(query, key, value)


def attention_gradient(xp: Any, s: Sizes, query: Any, key: Any, value: Any) -> Tree:
    def loss(query: Any, key: Any, value: Any) -> Any:
        return xp.sum(xp.attention(query, key, value) ** 2)

    return xp.grad(loss, (0, 1, 2))(query, key, value)


# --- a block, written with `@`, reshape, permute_dims, slices and softmax --------------------------------------------


def block_inputs(s: Sizes) -> tuple[Tree, ...]:
    width = s.width
    weights = {
        "attended": dense(width, 3 * width, 1),
        "projected": dense(width, width, 2),
        "widened": dense(width, 4 * width, 3),
        "narrowed": dense(4 * width, width, 4),
        "scales": np.ones((2, width), np.float32),
        "shifts": np.zeros((2, width), np.float32),
    }
    return weights, normal((s.batch, s.length, width))


def block_by_hand(xp: Any, heads: int, w: Tree, x: Any) -> Any:
    batch, length, width = x.shape

    def split(part: Any) -> Any:
        return xp.permute_dims(xp.reshape(part, (batch, length, heads, width // heads)), (0, 2, 1, 3))

    mixed = xp.nn.layer_norm(x, w["scales"][0], w["shifts"][0]) @ w["attended"]
    query, key, value = (split(mixed[..., i * width : (i + 1) * width]) for i in range(3))
    attended = xp.permute_dims(by_hand(xp, query, key, value), (0, 2, 1, 3))
    x = x + xp.reshape(attended, (batch, length, width)) @ w["projected"]
    hidden = xp.nn.layer_norm(x, w["scales"][1], w["shifts"][1]) @ w["widened"]
    return x + xp.nn.gelu(hidden) @ w["narrowed"]


def transformer_block(xp: Any, s: Sizes, w: Tree, x: Any) -> Tree:
    def loss(w: Tree, x: Any) -> Any:
        return xp.mean(block_by_hand(xp, s.heads, w, x) ** 2)

    return xp.value_and_grad(loss, (0, 1))(w, x)


# --- GPT-2 -----------------------------------------------------------------------------------------------------------


def gpt2_layer(width: int, seed: int) -> Tree:
    def bias(size: int) -> Array:
        return np.zeros(size, np.float32)

    return {
        "attended": normal((width, 3 * width), seed, 0.02),
        "attended_bias": bias(3 * width),
        "projected": normal((width, width), seed + 1, 0.02),
        "projected_bias": bias(width),
        "widened": normal((width, 4 * width), seed + 2, 0.02),
        "widened_bias": bias(4 * width),
        "narrowed": normal((4 * width, width), seed + 3, 0.02),
        "narrowed_bias": bias(width),
        "scale_1": np.ones(width, np.float32),
        "shift_1": bias(width),
        "scale_2": np.ones(width, np.float32),
        "shift_2": bias(width),
    }


def gpt2_inputs(s: Sizes) -> tuple[Tree, ...]:
    parameters = {
        "tokens": normal((s.vocabulary, s.width), 0, 0.02),
        "positions": normal((s.length, s.width), 1, 0.01),
        "layers": [gpt2_layer(s.width, 10 * index) for index in range(s.layers)],
        "scale": np.ones(s.width, np.float32),
        "shift": np.zeros(s.width, np.float32),
    }
    text = integers((s.batch, s.length + 1), s.vocabulary, 2)
    return parameters, adam_state(parameters), text


def gpt2_block(xp: Any, heads: int, w: Tree, x: Any) -> Any:
    batch, length, width = x.shape
    mixed = xp.nn.layer_norm(x, w["scale_1"], w["shift_1"]) @ w["attended"] + w["attended_bias"]
    mixed = xp.reshape(mixed, (batch, length, 3, heads, width // heads))
    attended = xp.attention(mixed[:, :, 0], mixed[:, :, 1], mixed[:, :, 2], causal=True)
    x = x + xp.reshape(attended, (batch, length, width)) @ w["projected"] + w["projected_bias"]
    hidden = xp.nn.layer_norm(x, w["scale_2"], w["shift_2"]) @ w["widened"] + w["widened_bias"]
    return x + xp.nn.gelu(hidden, approximate=True) @ w["narrowed"] + w["narrowed_bias"]


def gpt2(xp: Any, s: Sizes, parameters: Tree, state: Tree, text: Any) -> Tree:
    def loss(w: Tree) -> Any:
        x = xp.take(w["tokens"], text[:, :-1], axis=0) + w["positions"]
        for layer in w["layers"]:
            x = gpt2_block(xp, s.heads, layer, x)
        scores = xp.nn.layer_norm(x, w["scale"], w["shift"]) @ w["tokens"].T
        return xp.mean(xp.nn.cross_entropy(scores, text[:, 1:]))

    value, gradients = xp.value_and_grad(loss)(parameters)
    return *xp.adam(parameters, gradients, state), value


def loss_and_mean(result: Tree) -> Tree:
    """The loss and the running mean of gradients. New parameters of Adam hardly depend on the gradients' sizes."""
    return result[2], result[1]["mean"]


def gpt2_sizes(batch: int, length: int) -> Sizes:
    return Sizes(batch=batch, length=length, layers=12, width=768, heads=12, vocabulary=50257)


HEADS = one_size(batch=8, length=1024, width=512, heads=8)
SMALL = Sizes(batch=2, length=12, width=16, heads=2)
SHAPE = "{batch} × {length} × {width}, {heads} heads"
PROGRAMS = [
    Program("transformer_block", f"transformer block with gradients, {SHAPE}", HEADS, SMALL, block_inputs,
            transformer_block),
    Program("attention_by_hand", f"attention with @ and softmax, {SHAPE}", HEADS, SMALL, heads_inputs,
            attention_by_hand),
    Program("attention_by_hand_gradient", f"gradient of attention with @ and softmax, {SHAPE}", HEADS, SMALL,
            heads_inputs, attention_by_hand_gradient),
    Program("attention", f"attention by the library's function, {SHAPE}", HEADS, SMALL, positions_inputs, attention),
    Program("attention_gradient", f"gradient of attention by the library's function, {SHAPE}", HEADS, SMALL,
            positions_inputs, attention_gradient),
]  # fmt: skip
MODELS = [
    Program(
        "gpt2", "training step of GPT-2 small with AdamW, {batch} × {length} tokens",
        three_sizes(gpt2_sizes(1, 256), gpt2_sizes(2, 512), gpt2_sizes(4, 1024)),
        Sizes(batch=2, length=8, layers=2, width=16, heads=2, vocabulary=50), gpt2_inputs, gpt2, state_count=2,
        checked=loss_and_mean, tolerance=2e-3,
    ),
]  # fmt: skip
