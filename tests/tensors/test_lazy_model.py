"""Lazy tensors against a model: tensors are built, read, filled, dropped and differentiated in random order.

Each value follows the formula over the current data, or an error says that it can no longer be computed.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

import livegrad as lg

Array = np.ndarray


@dataclass(eq=False)
class Term:
    """The model of a tensor: data, or a rule over other terms."""

    data: Array | None = None
    rule: Callable[..., Array] | None = None
    over: tuple[Term, ...] = ()
    known: dict[int, Array] = field(default_factory=dict)

    def value(self, now: int) -> Array:
        if self.rule is None:
            assert self.data is not None
            return self.data
        if now not in self.known:
            self.known = {now: self.rule(*(term.value(now) for term in self.over)).astype(np.float32)}
        return self.known[now]

    def leaves(self) -> set[Term]:
        found: set[Term] = set()
        pending: list[Term] = [self]
        seen: set[Term] = set()
        while pending:
            term = pending.pop()
            if term not in seen:
                seen.add(term)
                pending += term.over
                if term.rule is None:
                    found.add(term)
        return found


RULES: tuple[tuple[Callable[..., lg.Tensor], Callable[..., Array], int], ...] = (
    (lambda a, b: 0.5 * a + 0.25 * b, lambda a, b: np.float32(0.5) * a + np.float32(0.25) * b, 2),
    (lambda a, b: lg.maximum(a, b) * 0.5, lambda a, b: np.maximum(a, b) * np.float32(0.5), 2),
    (lambda a: a[::-1] * 0.5 + 0.125, lambda a: a[::-1] * np.float32(0.5) + np.float32(0.125), 1),
    (lambda a: lg.sum(a) * 0.125 - a, lambda a: np.float32(a.sum()) * np.float32(0.125) - a, 1),
)


@pytest.mark.parametrize("seed", [0, 1, 3, 103, 131, 161])
def test_values_follow_the_formula_over_the_current_data(seed: int) -> None:
    chance = random.Random(seed)
    numbers = np.random.default_rng(seed)
    now = 0
    terms: list[tuple[lg.Tensor, Term]] = []
    filled: set[Term] = set()

    def add_leaf() -> None:
        data = numbers.standard_normal(4).astype(np.float32)
        terms.append((lg.asarray(data.copy()), Term(data=data)))

    def check(tensor: lg.Tensor, term: Term) -> None:
        try:
            found = tensor.numpy()
        except lg.UsageError:
            if not filled & term.leaves():
                raise
        else:
            np.testing.assert_allclose(found, term.value(now), rtol=2e-5, atol=2e-6)

    for _ in range(3):
        add_leaf()
    for _ in range(150):
        action = chance.random()
        if action < 0.55:
            build, rule, count = chance.choice(RULES)
            chosen = [chance.choice(terms[-6:]) for _ in range(count)]
            terms.append((build(*(tensor for tensor, _ in chosen)), Term(rule=rule, over=tuple(t for _, t in chosen))))
        elif action < 0.85:
            check(*chance.choice(terms[-4:]))
        elif action < 0.9 and len(terms) > 6:
            del terms[chance.randrange(len(terms) - 4)]
            gc.collect(0)
        elif action < 0.93 and seed % 2:
            leaves = [(tensor, term) for tensor, term in terms if term.rule is None]
            if leaves:
                tensor, term = chance.choice(leaves)
                tensor.fill(0.5)
                term.data = np.full(4, 0.5, np.float32)
                filled.add(term)
                now += 1
        elif action < 0.95:
            add_leaf()
    for tensor, term in terms:
        check(tensor, term)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_gradients_reach_their_variables_after_any_reads(seed: int) -> None:
    """Runs a loop of updates whose steps may read some of their results before the backward pass."""
    chance = random.Random(seed)
    w, v = (lg.asarray(np.array(data, np.float32)).requires_grad_() for data in ([1.0, -2.0, 0.5], [0.3, 0.1, -0.4]))
    shadow_w, shadow_v = (tensor.numpy().astype(np.float64) for tensor in (w, v))
    seen: list[lg.Tensor] = []
    for _ in range(40):
        inner = w * v + 1.0
        loss = lg.sum(inner**2) + lg.sum(w**2) * 0.5
        for tensor in chance.sample([w, v, inner, loss], chance.randrange(4)):
            tensor.execute()
        loss.backward()
        slope_w = 2.0 * (shadow_w * shadow_v + 1.0) * shadow_v + shadow_w
        slope_v = 2.0 * (shadow_w * shadow_v + 1.0) * shadow_w
        if chance.random() < 0.5:
            np.testing.assert_allclose(lg.asarray(w.grad).numpy(), slope_w, rtol=2e-3, atol=2e-4)
            np.testing.assert_allclose(lg.asarray(v.grad).numpy(), slope_v, rtol=2e-3, atol=2e-4)
        if chance.random() < 0.3:
            seen.append(inner)
        shadow_w, shadow_v = shadow_w - 0.05 * slope_w, shadow_v - 0.05 * slope_v
        w = (w - 0.05 * lg.asarray(w.grad)).requires_grad_()
        v = (v - 0.05 * lg.asarray(v.grad)).requires_grad_()
    np.testing.assert_allclose(w.numpy(), shadow_w, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(v.numpy(), shadow_v, rtol=1e-3, atol=1e-4)
