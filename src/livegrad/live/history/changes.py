"""Records of single edits, each with its undo and redo. `begin_change` captures what an edit is about to change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from livegrad.live.graph.block import Block, Body, Pin
from livegrad.live.graph.block_graph import Graph, feeds_of
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.edges import Edge, Source
from livegrad.live.graph.sources import Binding, Setting
from livegrad.ops.context import FeatureLevel

if TYPE_CHECKING:
    from livegrad.live.engine import Engine


class Change(ABC):
    """What one edit changed."""

    before: Any = None
    after: Any = None

    @property
    def key(self) -> Hashable | None:
        """What it changes, if it commutes with changes of other keys; a later change with its key merges into it."""
        return None

    @property
    @abstractmethod
    def label(self) -> str:
        """The edit in words."""

    @property
    def size(self) -> int:
        """The bytes of values that it keeps."""
        return 0

    @property
    def is_empty(self) -> bool:
        """Whether the edit changed nothing."""
        return self.before == self.after

    def finish(self, engine: Engine) -> None:  # noqa: B027 (adding and removing a block need nothing)
        """Captures the new state after the edit, or after the part of it that was made before an interrupt."""

    @abstractmethod
    def undo(self, engine: Engine) -> None:
        """Restores the state before the edit."""

    @abstractmethod
    def redo(self, engine: Engine) -> None:
        """Restores the state after the edit."""


Fed = tuple[Source | None, Source | None]  # the source of an input, and its dormant source


@dataclass(eq=False)
class Feed(Change):
    """Another source of an input: a connection, a value, external memory, or none."""

    graph: Graph
    pin: Pin
    before: Fed
    after: Fed = (None, None)

    @property
    def key(self) -> Hashable | None:
        is_value = not isinstance(self.before[0], Edge | Binding) and isinstance(self.after[0], Setting)
        return self.pin if is_value and self.before[1] is None else None

    @property
    def label(self) -> str:
        match self.after[0]:
            case Edge(source):
                return f"connect {source} to {self.pin}"
            case Binding():
                return f"bind {self.pin}"
            case Setting():
                return f"set {self.pin}"
        return f"disconnect {self.pin}"

    @property
    def size(self) -> int:
        return bytes_of((*self.before, *self.after))

    def finish(self, engine: Engine) -> None:
        self.after = fed(self.graph, self.pin)

    def undo(self, engine: Engine) -> None:
        _feed(self.graph, self.pin, self.before)

    def redo(self, engine: Engine) -> None:
        _feed(self.graph, self.pin, self.after)


def bytes_of(sources: Iterable[Source | None]) -> int:
    """The bytes of the arrays that sources hold."""
    size = 0
    for source in sources:
        if isinstance(source, Setting) and isinstance(source.value, np.ndarray):
            size += source.value.nbytes
    return size


def fed(graph: Graph, pin: Pin) -> Fed:
    """What feeds an input."""
    return graph.sources.get(pin), graph.dormant.get(pin)


def _feed(graph: Graph, pin: Pin, wanted: Fed) -> None:
    """Feeds an input, by an ordinary edit."""
    source, dormant = wanted
    match source:
        case Edge():
            graph.connect(source.source, pin)
        case Binding():
            graph.bind(pin, source.external)
        case Setting():
            graph.restore(pin, source.value)
        case None if pin in graph.sources or pin in graph.dormant:
            graph.disconnect(pin)
    if dormant is not None:
        graph.suspend(pin, dormant)


@dataclass(eq=False)
class Presence(Change):
    """A block that was added or removed, with what fed it and its readers when it was last removed."""

    graph: Graph
    block: Block
    is_added: bool
    feeds: dict[Pin, Source] = field(default_factory=dict)
    dormant: dict[Pin, Source] = field(default_factory=dict)
    serial: int | None = None

    def __post_init__(self) -> None:
        self.was_present = self.is_present

    @property
    def label(self) -> str:
        return f"{'add' if self.is_added else 'remove'} {self.block.name}"

    @property
    def size(self) -> int:
        return bytes_of(self.feeds.values())

    def capture(self) -> None:
        """Captures what the removal of the block loses."""
        self.feeds, self.dormant = feeds_of(self.graph, self.block)
        self.serial = self.block.serial

    @property
    def is_present(self) -> bool:
        """Whether the graph has the block now."""
        return self.graph.blocks.get(self.block.name) is self.block

    @property
    def is_empty(self) -> bool:
        if self.is_present != self.was_present:
            return False
        # An interrupt may have ended a removal early.
        return self.is_added or (self.feeds, self.dormant) == feeds_of(self.graph, self.block)

    def undo(self, engine: Engine) -> None:
        (self._take_out if self.is_added else self._put_back)()

    def redo(self, engine: Engine) -> None:
        (self._put_back if self.is_added else self._take_out)()

    def _take_out(self) -> None:
        self.capture()
        self.graph.remove(self.block)

    def _put_back(self) -> None:
        assert self.serial is not None
        if not self.is_present:
            self.graph.add(self.block)
        self.graph.reorder(self.block, self.serial)
        for pin, source in self.feeds.items():
            _feed(self.graph, pin, (source, None))
        for pin, source in self.dormant.items():
            self.graph.suspend(pin, source)


@dataclass(eq=False)
class Rename(Change):
    """Another name of a block."""

    block: Block
    before: str
    after: str = ""

    @property
    def label(self) -> str:
        return f"rename {self.before} to {self.after}"

    def finish(self, engine: Engine) -> None:
        self.after = self.block.name

    def undo(self, engine: Engine) -> None:
        engine.rename(self.block, self.before)

    def redo(self, engine: Engine) -> None:
        engine.rename(self.block, self.after)


@dataclass(eq=False)
class NewBody(Change):
    """Another body of a block, with its shape rules, of which it may have lost some."""

    graph: Graph
    block: Block
    before: tuple[Body, dict[str, str]]
    after: tuple[Body, dict[str, str]] | None = None

    @property
    def label(self) -> str:
        return f"edit {self.block.name}"

    def finish(self, engine: Engine) -> None:
        self.after = self.block.body, self.block.shapes

    def undo(self, engine: Engine) -> None:
        self._install(*self.before)

    def redo(self, engine: Engine) -> None:
        assert self.after is not None
        self._install(*self.after)

    def _install(self, body: Body, shapes: dict[str, str]) -> None:
        self.graph.edit(self.block, body)
        self.block.shapes = shapes


Exposed = tuple[dict[str, list[Pin]], dict[str, Pin]]


@dataclass(eq=False)
class Exposure(Change):
    """Other exposed pins of a composite."""

    composite: Composite
    before: Exposed
    after: Exposed = field(default_factory=lambda: ({}, {}))

    @property
    def label(self) -> str:
        has_more = sum(map(len, self.after[0].values())) + len(self.after[1]) > (
            sum(map(len, self.before[0].values())) + len(self.before[1])
        )
        return f"{'expose a pin' if has_more else 'hide a pin'} of {self.composite.name}"

    def finish(self, engine: Engine) -> None:
        self.after = exposed_by(self.composite)

    def undo(self, engine: Engine) -> None:
        self.composite.restore_exposed(*self.before)

    def redo(self, engine: Engine) -> None:
        self.composite.restore_exposed(*self.after)


def exposed_by(composite: Composite) -> Exposed:
    """A copy of what a composite exposes."""
    return {name: list(pins) for name, pins in composite.inner_inputs.items()}, dict(composite.inner_outputs)


@dataclass(eq=False)
class Look(Change):
    """Another position of a block, or another control of a pin."""

    owner: Block | Pin
    attribute: str  # position or control
    before: Any
    after: Any = None

    @property
    def key(self) -> Hashable:
        return self.owner, self.attribute

    @property
    def label(self) -> str:
        name = self.owner.name if isinstance(self.owner, Block) else f"the control of {self.owner}"
        return f"{'move' if self.attribute == 'position' else 'change'} {name}"

    def finish(self, engine: Engine) -> None:
        self.after = self.owner.position if isinstance(self.owner, Block) else self.owner.own_control

    def undo(self, engine: Engine) -> None:
        setattr(self.owner, self.attribute, self.before)

    def redo(self, engine: Engine) -> None:
        setattr(self.owner, self.attribute, self.after)


@dataclass(eq=False)
class NewFeature(Change):
    """Another value of a feature of the context; None: no value."""

    feature: FeatureLevel
    before: Any
    after: Any = None

    @property
    def key(self) -> Hashable:
        return self.feature

    @property
    def label(self) -> str:
        return f"set feature {self.feature}"

    @property
    def is_empty(self) -> bool:
        return self.before is self.after

    def finish(self, engine: Engine) -> None:
        self.after = engine.features.get(self.feature)

    def undo(self, engine: Engine) -> None:
        engine._set_feature(self.feature, self.before)

    def redo(self, engine: Engine) -> None:
        engine._set_feature(self.feature, self.after)


@dataclass(eq=False)
class NewPreset(Change):
    """Other values of a preset; None: there is no such preset."""

    name: str
    before: dict[Pin, Any] | None
    after: dict[Pin, Any] | None = None

    @property
    def label(self) -> str:
        return f"{'remove' if self.after is None else 'save'} preset {self.name}"

    @property
    def size(self) -> int:
        values = (value for preset in (self.before, self.after) if preset is not None for value in preset.values())
        return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

    @property
    def is_empty(self) -> bool:
        return self.before is self.after

    def finish(self, engine: Engine) -> None:
        self.after = engine.presets.saved.get(self.name)

    def undo(self, engine: Engine) -> None:
        engine.presets.restore(self.name, self.before)

    def redo(self, engine: Engine) -> None:
        engine.presets.restore(self.name, self.after)


def begin_change(edit: str, graph: Any, arguments: tuple[Any, ...], engine: Engine) -> Change | None:
    """The change that an edit is about to make; None if it cannot be undone, or has invalid arguments."""
    subject = arguments[-1] if edit == "connect" else arguments[0]
    match edit, subject:
        case "connect" | "disconnect" | "set" | "bind", Pin():
            return Feed(graph, subject, fed(graph, subject))
        case "add", Block():
            return Presence(graph, subject, True)
        case "remove", Block():
            removal = Presence(graph, subject, False)
            removal.capture()
            return removal
        case "rename", Block():
            return Rename(subject, subject.name)
        case "edit", Block() if "body" in vars(subject):
            return NewBody(graph, subject, (subject.body, subject.shapes))
        case "expose" | "exposures", Composite():
            return Exposure(subject, exposed_by(subject))
        case "hide", Pin(block=Composite() as composite):
            return Exposure(composite, exposed_by(composite))
        case "move", Block():
            return Look(subject, "position", subject.position)
        case "control", Pin():
            return Look(subject, "control", subject.own_control)
        case "feature", _:
            return NewFeature(subject, engine.features.get(subject))
        case "preset", str():
            return NewPreset(subject, engine.presets.saved.get(subject))
    return None
