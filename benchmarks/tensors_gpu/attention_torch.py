"""PyTorch's ports of `attention`."""
# pyright: reportMissingImports=false

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.tensors_gpu.program import Run, Sizes, Tree
from benchmarks.tensors_gpu.torch_idioms import compiled, compiled_gradient, training_step, value_and_gradient


def by_hand(query: Any, key: Any, value: Any) -> Any:
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    return torch.softmax(scores, dim=-1) @ value


def attention_by_hand(s: Sizes, query: Any, key: Any, value: Any) -> Run:
    return compiled(by_hand, query, key, value)


def attention_by_hand_gradient(s: Sizes, query: Any, key: Any, value: Any) -> Run:
    return compiled_gradient(lambda *parts: (by_hand(*parts) ** 2).sum(), (0, 1, 2), query, key, value)


def by_library(query: Any, key: Any, value: Any) -> Any:
    """Of [batch, positions, heads, width]; PyTorch's function has the heads first."""
    heads_first = (part.transpose(1, 2) for part in (query, key, value))
    return F.scaled_dot_product_attention(*heads_first).transpose(1, 2)


def attention(s: Sizes, query: Any, key: Any, value: Any) -> Run:
    return compiled(by_library, query, key, value)


def attention_gradient(s: Sizes, query: Any, key: Any, value: Any) -> Run:
    parts = (query, key, value)
    run = value_and_gradient(lambda parts: (by_library(*parts) ** 2).sum(), parts)
    return lambda: run()[1]


def transformer_block(s: Sizes, w: Tree, x: Any) -> Run:
    heads = s.heads

    def loss(arguments: Tree) -> Any:
        w, x = arguments
        batch, length, width = x.shape
        mixed = F.layer_norm(x, (width,), w["scales"][0], w["shifts"][0]) @ w["attended"]
        parts = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in mixed.split(width, -1))
        attended = F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(batch, length, width)
        x = x + attended @ w["projected"]
        hidden = F.layer_norm(x, (width,), w["scales"][1], w["shifts"][1]) @ w["widened"]
        return ((x + F.gelu(hidden) @ w["narrowed"]) ** 2).mean()

    return value_and_gradient(loss, (w, x))


def gpt2_block(heads: int, w: Tree, x: Any) -> Any:
    batch, length, width = x.shape
    mixed = F.layer_norm(x, (width,), w["scale_1"], w["shift_1"]) @ w["attended"] + w["attended_bias"]
    parts = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in mixed.split(width, -1))
    attended = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(batch, length, width)
    x = x + attended @ w["projected"] + w["projected_bias"]
    hidden = F.layer_norm(x, (width,), w["scale_2"], w["shift_2"]) @ w["widened"] + w["widened_bias"]
    return x + F.gelu(hidden, approximate="tanh") @ w["narrowed"] + w["narrowed_bias"]


def gpt2(s: Sizes, parameters: Tree, state: Tree, text: Any) -> Run:
    heads, width, text = s.heads, s.width, text.long()

    def loss(w: Tree, text: Any) -> Any:
        x = F.embedding(text[:, :-1], w["tokens"]) + w["positions"]
        for layer in w["layers"]:
            x = gpt2_block(heads, layer, x)
        scores = F.layer_norm(x, (width,), w["scale"], w["shift"]) @ w["tokens"].T
        return F.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())

    return training_step(loss, parameters, text)


PORTS: dict[str, Callable[..., Run]] = {
    "attention_by_hand": attention_by_hand,
    "attention_by_hand_gradient": attention_by_hand_gradient,
    "attention": attention,
    "attention_gradient": attention_gradient,
    "transformer_block": transformer_block,
    "gpt2": gpt2,
}
