"""A 2,000-node animation document for the context benchmarks, and an independent count of the minimal work.

100 shapes of 18 nodes each (values, a path, a loop over dabs, styles, a modifier of the footprint), put together by
a tree. One shape in ten moves with `animation_time`, one in twenty looks at `pointer_position`; all read `footprint`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

ROOT = ("animation_time", "footprint", "pointer_position", "real_time")
FRAMES = {"context_frames": 240, "context_whole": 12}
FAN = 1000
KINDS = frozenset({*FRAMES, "context_hit", "context_fan", "context_compile", "context_ladder"})


@dataclass(frozen=True)
class Item:
    """One node as data: `function(ctx, *plain values, *scoped callables)`, or a plain value."""

    name: str
    function: Callable[..., Any] | None = None
    value: Any = None
    plain: tuple[str, ...] = ()
    scoped: tuple[str, ...] = ()
    extract: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    modify: tuple[str, ...] = ()


def path(ctx: Any, radius: float, offset: float) -> float:
    return radius * 2.0 + offset + ctx.footprint * 0.001


def phase(ctx: Any, speed: float) -> float:
    return math.sin(ctx.animation_time * speed + speed)


def hover(ctx: Any, radius: float) -> float:
    return math.hypot(*ctx.pointer_position) + radius


def at_rest(ctx: Any, speed: float) -> float:
    return speed


def dab(ctx: Any, path: float, phase: float) -> float:
    return path + phase * 0.1 + ctx.index * 0.5


def dabs(ctx: Any, dab: Any) -> float:
    return math.fsum(dab(ctx.inject(index=index)) for index in range(3))


def larger(ctx: Any, source: Any) -> float:
    return source(ctx.modify(footprint=lambda size: size * 1.25))


def style(ctx: Any, below: float, amount: float) -> float:
    return below * 0.999 + amount


def tint(ctx: Any, amount: float) -> float:
    return amount * 1.5 - 0.25


def over(ctx: Any, *layers: float) -> float:
    return math.fsum(layers)


def shape(index: int) -> list[Item]:
    """18 nodes: the first three are values, the last one is shown by the document."""

    def name(part: str) -> str:
        return f"{part}{index}"

    moving = phase if index % 10 == 0 else hover if index % 20 == 7 else at_rest
    reads = {phase: ("animation_time",), hover: ("pointer_position",)}.get(moving, ())
    items = [
        Item(name("radius"), value=1.0 + index / 7),
        Item(name("offset"), value=index * 3.25),
        Item(name("speed"), value=0.5 + index / 3),
        Item(name("path"), path, plain=(name("radius"), name("offset")), extract=("footprint",)),
        Item(name("phase"), moving, plain=(name("speed"),), extract=reads),
        Item(name("dab"), dab, plain=(name("path"), name("phase")), extract=("index",)),
        Item(name("dabs"), dabs, scoped=(name("dab"),), inject=("index",)),
    ]
    below = name("dabs")
    for step in range(5):
        items.append(Item(name(f"tint{step}_"), tint, plain=(name("radius" if step % 2 else "offset"),)))
        items.append(Item(name(f"style{step}_"), style, plain=(below, name(f"tint{step}_"))))
        below = name(f"style{step}_")
    return [*items, Item(name("larger"), larger, scoped=(below,), modify=("footprint",))]


def document(shapes: int) -> list[Item]:
    """All shapes, then a tree to put them together; inputs come before their users."""
    items = [item for shape_index in range(shapes) for item in shape(shape_index)]
    level, layer = 0, [f"larger{shape_index}" for shape_index in range(shapes)]
    while len(layer) > 1:
        pairs = [(layer[index_in_layer - 1], layer[index_in_layer]) for index_in_layer in range(1, len(layer), 2)]
        items += [Item(f"over{level}_{index}", over, plain=pair) for index, pair in enumerate(pairs)]
        layer = [f"over{level}_{index}" for index in range(len(pairs))] + (layer[-1:] if len(layer) % 2 else [])
        level += 1
    return items


def moments(frames: int) -> list[dict[str, Any]]:
    """Contexts that differ in one feature."""
    still = {"footprint": 640.0, "pointer_position": (0.25, 0.75), "real_time": 1.0}
    return [{**still, "animation_time": frame / 24} for frame in range(frames)]


# --- the minimal work, counted by plain recursion over whole contexts ------------------------------------------------


@dataclass
class WholeContext:
    features: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.features[name]

    def inject(self, **features: Any) -> "WholeContext":
        return WholeContext({**self.features, **features})

    def modify(self, **changes: Callable[[Any], Any]) -> "WholeContext":
        return self.inject(**{name: change(self.features[name]) for name, change in changes.items()})


@dataclass
class Oracle:
    """Evaluates without caching, and records the distinct values of needed features for each node."""

    items: dict[str, Item]
    seen: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.need = cache(self._need)

    def _need(self, name: str) -> frozenset[str]:
        item = self.items[name]
        below = frozenset().union(*(self.need(source) for source in item.scoped)) - set(item.inject)
        return frozenset(item.extract).union(below, *(self.need(source) for source in item.plain))

    def evaluate(self, name: str, context: WholeContext) -> Any:
        item = self.items[name]
        self.seen.add((name, tuple((feature, context.features[feature]) for feature in sorted(self.need(name)))))
        if item.function is None:
            return item.value
        plain = [self.evaluate(source, context) for source in item.plain]
        scoped = [lambda inner, source=source: self.evaluate(source, inner) for source in item.scoped]
        return item.function(context, *plain, *scoped)


@cache
def least_work(shapes: int, frames: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The document's value at each moment, and the number of additional computations at each moment."""
    items = {item.name: item for item in document(shapes)}
    oracle, values, counts = Oracle(items), [], []
    for moment in moments(frames):
        before = len(oracle.seen)
        values.append(oracle.evaluate(list(items)[-1], WholeContext(moment)))
        counts.append(len(oracle.seen) - before)
    return tuple(values), tuple(counts)


def expected(kind: str, size: int) -> list[float]:
    """The expected result of a run of each kind."""
    if kind in FRAMES:
        return list(least_work(size, FRAMES[kind])[0])
    return [{"context_compile": float(len(document(size))), "context_fan": FAN * 0.5}.get(kind, float(size))]
