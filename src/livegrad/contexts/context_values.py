"""The context that a program is evaluated in: an immutable mapping of features to values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from livegrad.contexts.cache.describe import short_text
from livegrad.contexts.cache.interned_values import ABSENT, Interned
from livegrad.contexts.cache.store import Slot
from livegrad.contexts.errors import ContextError
from livegrad.contexts.guard import intern_feature
from livegrad.contexts.link import Environment, Linked
from livegrad.diagnostics import caller_origin
from livegrad.ops.context import FeatureLevel, parse_feature


class _Cell:
    """A memo slot for one feature, shared by derived contexts: its value, and its interned form once it is needed."""

    __slots__ = ("interned", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.interned: Interned | None = None


class Bound(NamedTuple):
    """A context bound to one program: the environment of its output, and the slots of its results."""

    linked: Linked | None
    environment: Environment
    slots: dict[Any, Slot]


_UNBOUND = Bound(None, (), {})


class Context(Mapping[str, Any]):
    """Features with values. Arrays are hashed and copied when they are first needed.

    >>> moment = Context(animation_time=0.5, footprint=(64, 64))
    >>> moment.replace(animation_time=0.6)
    Context(animation_time=0.6, footprint=(64, 64))
    >>> Context({"index": 2, "index@1": 0})["index@1"]
    0
    """

    __slots__ = ("_bound", "_cells")

    def __init__(self, features: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        self._cells = {str(parse_feature(name)): _Cell(value) for name, value in {**(features or {}), **named}.items()}
        # The binding for the last program that used the context. It is one object, because threads may share a context.
        self._bound: Bound = _UNBOUND

    def __getitem__(self, feature: str) -> Any:
        cell = self._cells[feature]
        return cell.value if cell.interned is None else cell.interned.value

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return f"Context({', '.join(f'{name}={short_text(value)}' for name, value in self.items())})"

    def replace(self, **features: Any) -> Context:
        """Returns the context with new values for some features. The others are not hashed again."""
        changed = Context(features)
        changed._cells = {**self._cells, **changed._cells}
        return changed

    def bind(self, linked: Linked) -> Bound:
        """Binds the context to a program: selects the features that it needs."""
        bound = self._bound
        if bound.linked is not linked:
            environment = tuple([self._interned_feature(linked, feature) for feature in linked.output.need])
            bound = self._bound = Bound(linked, environment, linked.output.slots)
        return bound

    def _interned_feature(self, linked: Linked, feature: FeatureLevel) -> Interned:
        name = str(feature)
        cell = self._cells.get(name)
        if cell is None:
            if feature not in linked.output.required:
                return ABSENT
            raise ContextError(
                f"the context has no `{name}`, which `{linked.output.name}` needs",
                where=caller_origin(),
                expected=", ".join(map(str, linked.output.need)),
                found=", ".join(self._cells) or "nothing",
            )
        if cell.interned is None:
            cell.interned = intern_feature(name, cell.value, "the context has")
        return cell.interned
