"""The description of a live graph: blocks with pins, the source of each pin, and nested graphs.

Nothing here runs. Users edit it through `Engine`, which holds one `Graph`; the graph compiler turns it into a plan.
Every change is written to the journal, which tells a frame what to examine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, Protocol, TypeVar

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, shown
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, Type, scalar_of_dtype
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.gradient_source import GradientSource
from livegrad.live.graph.journal import Journal, Postbox, hold_locks
from livegrad.live.graph.sources import (
    Binding,
    ExternalBuffer,
    Given,
    Numbers,
    Setting,
    array_of,
    describe_setting,
    same_value,
    setting_of,
    with_default_type,
)
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.context import FeatureLevel
from livegrad.runtime.arguments import array_argument


@dataclass(frozen=True)
class InputSpec:
    """What a body says of one input: its name, its type (None: any), and the value it has when nothing feeds it."""

    name: str
    type: Type | None = None
    default: Any = None


@dataclass(frozen=True)
class Specialized:
    """A body for known input types.

    The function takes the inputs, then `features`, then `constants`. `sizes` are the values of its symbolic sizes. A
    call of a library is no function of the value IR, and takes the inputs only.
    """

    function: Function | CapturedCall | CudaKernel
    features: tuple[FeatureLevel, ...] = ()
    constants: tuple[Numbers, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()


class Body(Protocol):
    """What a block computes. Equal inputs must give an equal (best: the same) result; errors are `LivegradError`."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[InputSpec, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    def specialize(self, given: tuple[Given, ...]) -> Specialized: ...


@dataclass(eq=False)
class Pin(GradientSource):
    """One input or output of a block; `block["name"]` finds it."""

    block: Block
    name: str
    direction: Literal["input", "output"]
    default: tuple[Any, Setting] | None = field(default=None, repr=False)  # what it is when nothing feeds it

    def __repr__(self) -> str:
        return f"{self.block.name}.{self.name}"


@dataclass(eq=False)
class Tally:
    """How often a set of steps has run; all blocks in the set share it."""

    times: int = 0
    is_over: bool = False  # nobody counts it up any more


@dataclass
class Debug:
    """What the engine last had to say of a block: its state, and what went wrong."""

    state: Literal["new", "running", "failed", "removed"] = "new"
    errors: list[LivegradError] = field(default_factory=list)
    refused: bool = False  # whether the errors are of the description; else they came up while it ran
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of its last run, when profiling is on
    counted: int = 0  # runs beside those of the tallies
    tallies: list[Tally] = field(default_factory=list, repr=False)

    @property
    def runs(self) -> int:
        """How often its step ran."""
        return self.counted + sum(tally.times for tally in self.tallies)

    def join(self, tally: Tally) -> None:
        """Shares a tally from now on. The runs of those that are over become its own, now that somebody looks."""
        for known in [one for one in self.tallies if one.is_over]:
            self.tallies.remove(known)
            self.counted += known.times
        self.tallies.append(tally)


class Watch(Protocol):
    """Edits a block when something outside has changed. The engine polls it before each frame."""

    @property
    def block(self) -> Block: ...
    @property
    def error(
        self,
    ) -> LivegradError | None: ...  # a problem of every frame until it is mended; the last code keeps running
    def poll(self) -> None: ...


class Block(GradientSource):
    """A node of a live graph: a body, and pins for its inputs and outputs. It only describes work.

    `limits` are the largest values of outputs before the engine warns, such as the capacity of a buffer. `appends`
    declares that the output `values` has `total` valid rows, as an append buffer requires.

    >>> from livegrad.live.blocks import block
    >>> double = block(lambda x: x * 2.0, name="double")
    >>> double["x"], double["result"]
    (double.x, double.result)
    """

    limits: Mapping[str, int] = MappingProxyType({})
    appends: bool = False
    home: Graph | None = None  # the graph that it is in
    is_read: bool = False  # somebody has read one of its results
    watch: Watch | None = None  # follows files while the block is in an engine

    def __init__(self, body: Body, name: str | None = None, shapes: Mapping[str, str] | None = None) -> None:
        require_body(body)
        self.name = body.name if name is None else name
        self.body = body
        self.debug = Debug()
        self._make_pins([spec.name for spec in body.inputs], body.outputs)
        self.shapes = _shape_rules(self, shapes)

    def _make_pins(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Gives it these pins; those that people hold stay what they are."""
        names = [*inputs, *outputs]
        for name in (self.name, *names):
            if not isinstance(name, str) or not name:
                what = "blocks and pins have names" if isinstance(name, str) else "a name is a text"
                raise UsageError(what, where=caller_origin(), expected="a str", found=repr(name))
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(
                f"the pins of `{self.name}` need distinct names", where=caller_origin(), found=", ".join(twice)
            )
        known_inputs, known_outputs = getattr(self, "inputs", {}), getattr(self, "outputs", {})
        self.inputs = {name: known_inputs.get(name) or Pin(self, name, "input") for name in inputs}
        self.outputs = {name: known_outputs.get(name) or Pin(self, name, "output") for name in outputs}

    def __getitem__(self, name: str) -> Pin:
        found = self.inputs.get(name) or self.outputs.get(name)
        if found is None:
            raise UsageError(
                f"block `{self.name}` has no pin `{name}`",
                where=caller_origin(),
                expected="one of " + ", ".join([*self.inputs, *self.outputs]),
            )
        return found

    def inner_graphs(self) -> Iterator[tuple[str, Graph]]:
        """The inner graphs, with the path component for the names of their blocks."""
        return iter(())

    def pins_behind(self, name: str) -> Sequence[Pin]:
        """The inner inputs that get what an input is given."""
        return ()

    def default_of(self, name: str) -> Any:
        """The default of an input; None if it must be connected or set."""
        return next((spec.default for spec in self.body.inputs if spec.name == name), None)

    def __repr__(self) -> str:
        return f"<block {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs) or 'nothing'}>"


AnyBlock = TypeVar("AnyBlock", bound=Block)


def require_block(block: Any) -> None:
    """Raises where a block is needed and something else is given, such as its name."""
    if not isinstance(block, Block):
        found = shown(block) if isinstance(block, str) else type(block).__name__
        help = "pass the block that `add` gave"
        raise UsageError("not a block", where=caller_origin(), expected="a Block", found=found, help=help)


def require_body(body: Any) -> None:
    """Raises where a body is needed and something else is given, such as the function that it would be made from."""
    if not all(hasattr(body, part) for part in ("inputs", "outputs", "specialize")):
        help = (
            "lg.block(function) makes a block of a function; lg.live.edit(engine, block, function) gives it another one"
        )
        raise UsageError("not a body", where=caller_origin(), found=type(body).__name__, help=help)


def _shape_rules(block: Block, shapes: Any) -> dict[str, str]:
    """Rules that outputs must obey, by output."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        found, help = type(shapes).__name__, 'write shapes={"result": "same(0)"}'
        raise UsageError("shapes are rules by output", where=caller_origin(), expected="a dict", found=found, help=help)
    for name, rule in shapes.items():
        if name not in block.outputs:
            expected = f"one of {', '.join(block.outputs) or 'none'}"
            raise UsageError(f"`{block.name}` has no output `{name}`", where=caller_origin(), expected=expected)
        if not isinstance(rule, str):
            found = shown(rule)
            raise UsageError(f"the rule of output `{name}` is not text", where=caller_origin(), found=found)
    return dict(shapes)


class State(Block):
    """A value that persists from frame to frame. `value` is the value of the last frame; `next` becomes the new one.

    Cycles in a graph must go through a state. It advances once per frame, after all steps have run. A state that starts
    with a Python float is float32; start it with `np.float64(0.0)` for float64. `engine.set(state, value)` sets its
    value, and `engine.reset(state)` restores the initial one.

    >>> State("position", [0.0, 0.0, 0.0])["next"]
    position.next
    """

    def __init__(self, name: str, initial: Any) -> None:
        self.name = name
        self.debug = Debug()
        self.shapes = {}
        self.initial: Numbers = array_of(with_default_type(initial))
        self._make_pins(("next",), ("value",))

    def default_of(self, name: str) -> Any:
        return None

    def value_of(self, value: Any) -> Numbers:
        """Returns a copy of a value with the type and shape of the state; arrays must already have its type."""
        own = self.initial
        type = Tensor(scalar_of_dtype(own.dtype), own.shape)
        array = array_argument(value, type, f"the value of state `{self.name}`")
        if array.shape != own.shape:
            raise UsageError(
                f"the value of state `{self.name}` does not fit",
                where=caller_origin(),
                expected=str(type),
                found=f"shape {array.shape}",
                help="a state keeps its shape; for another one, remove it and add another",
            )
        return np.array(array)


class Composite(Block):
    """A graph of blocks that is used as one block. `expose` makes inner pins accessible.

    >>> from livegrad.live.blocks import block
    >>> both = Composite("both")
    >>> double = both.graph.add(block(lambda x: x * 2.0, name="double"))
    >>> both.expose(double["x"]), both.expose(double["result"], "doubled")
    (both.x, both.doubled)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.debug = Debug()
        self.shapes = {}
        self.graph = Graph()
        self.inner_inputs: dict[str, list[Pin]] = {}
        self.inner_outputs: dict[str, Pin] = {}
        self.used_by: list[Composite] = []  # regions that have it as a body
        self._make_pins((), ())

    if not TYPE_CHECKING:  # which knows by itself what a composite has not

        def __getattr__(self, name: str) -> NoReturn:
            what = f"'{type(self).__name__}' object has no attribute '{name}'"
            if name in ("add", "bind", "connect", "disconnect", "remove", "set"):
                what += f"; blocks inside belong to its graph: write composite.graph.{name}(...)"
            raise AttributeError(what, name=name, obj=self)

    def expose(self, pin: Pin, name: str | None = None) -> Pin:
        """Exposes an inner pin as a pin of this block. Several inner inputs may share a name and then receive the same
        value."""
        if not isinstance(pin, Pin):
            raise UsageError("not a pin", where=caller_origin(), found=type(pin).__name__, help='block["name"] is one')
        if name is not None and not isinstance(name, str):
            raise UsageError(
                "the name of a pin must be a string", where=caller_origin(), expected="a str", found=type(name).__name__
            )
        own = name or pin.name
        with self.graph.editing(), self.graph.journal.observed("expose", None, self, pin, own):
            return self._expose(pin, own)

    def _expose(self, pin: Pin, own: str) -> Pin:
        self._require_exposable(pin)
        before = {name: list(pins) for name, pins in self.inner_inputs.items()}, dict(self.inner_outputs)
        self.graph.journal.write("structure", Place(self.graph, (pin.block,)), f"`{own}` exposed")
        if pin.direction == "input":
            self.inner_inputs.setdefault(own, []).append(pin)
        elif own in self.inner_outputs:
            raise UsageError(f"`{self.name}` has an output `{own}`", where=caller_origin())
        else:
            self.inner_outputs[own] = pin
        try:
            self._follow_inside()
        except UsageError:  # a name that is taken, here or in a region that this is a body of
            self.inner_inputs, self.inner_outputs = before
            self._follow_inside()
            raise
        return self[own]

    def _require_exposable(self, pin: Pin) -> None:
        where = caller_origin()
        if pin.block.home is not None and pin.block.home is not self.graph:
            help = f"add `{pin.block.name}` to `{self.name}.graph`, or expose it where it is"
            raise UsageError(f"`{pin}` is in another graph than that of `{self.name}`", where=where, help=help)
        if (pin.block.inputs if pin.direction == "input" else pin.block.outputs).get(pin.name) is None:
            raise UsageError(f"`{pin.block.name}` no longer has pin `{pin.name}`", where=where)
        for name, pins in self.inner_inputs.items():
            if any(known.block is pin.block and known.name == pin.name for known in pins):
                raise UsageError(f"`{pin}` is exposed as `{self.name}.{name}` already", where=where)

    def _follow_inside(self) -> None:
        """Gives it, and regions around it, the pins that are exposed."""
        self._make_pins(tuple(self.inner_inputs), tuple(self.inner_outputs))
        for region in self.used_by:
            region._follow_inside()

    def inner_output(self, name: str) -> Pin | None:
        """Returns the inner pin of an output, or None if it no longer exists."""
        pin = self.inner_outputs.get(name)
        return pin if pin is not None and pin.block.home is self.graph and pin.name in pin.block.outputs else None

    def inner_graphs(self) -> Iterator[tuple[str, Graph]]:
        yield "", self.graph

    def pins_behind(self, name: str) -> Sequence[Pin]:
        inner = (pin.block.inputs.get(pin.name) for pin in self.inner_inputs.get(name, ()))
        return [pin for pin in inner if pin is not None and pin.block.home is self.graph]

    def default_of(self, name: str) -> Any:
        return None


@dataclass(frozen=True)
class Edge:
    """An input that is fed by an output."""

    source: Pin


Source = Edge | Setting | Binding


@dataclass(frozen=True, eq=False)
class StateValue:
    """The value of a state from the next frame on."""

    state: State
    value: Numbers


@dataclass(frozen=True, eq=False)
class Place:
    """Where the structure has changed: blocks that came, went or have other pins, and the graph that they were in.

    With a composite that went come the blocks that were inside of it.
    """

    graph: Graph
    blocks: tuple[Block, ...]


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _edit(
    method: Callable[Concatenate[Graph, Arguments], Result],
) -> Callable[Concatenate[Graph, Arguments], Result]:
    """An edit of a graph: one at a time, and none while a frame reads the description.

    It writes to the journal first: an interrupt may leave an entry of what has not changed, never a change without one.
    """

    @wraps(method)
    def edit(graph: Graph, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with graph.editing():
            if graph.journal.observer is None:
                return method(graph, *arguments, **named)
            with graph.journal.observed(name, graph, *arguments, *named.values()):
                return method(graph, *arguments, **named)

    name = {"_add": "add", "_give": "set"}.get(method.__name__, method.__name__)
    return edit


class Graph:
    """Blocks by name, and the sources of their inputs. Threads may edit it concurrently."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.blocks: dict[str, Block] = {}
        self.sources: dict[Pin, Source] = {}
        self._readers: dict[Block, set[Pin]] = {}  # pins that a block feeds; some that it fed may be among them
        self.is_engine = False  # whether an engine runs it as it is
        self.uses: list[tuple[Block, str]] = []  # blocks in graphs that this one is inside of, and as which body
        self._journal = journal or Journal()
        self._postbox = Postbox(self.sources, self._give_posted, self)

    @property
    def journal(self) -> Journal:
        return self._journal

    @journal.setter
    def journal(self, journal: Journal) -> None:
        waiting, seen = [self], set[Graph]()
        while waiting:
            graph = waiting.pop()
            if graph in seen or (graph._journal.is_engines and not journal.is_engines):
                continue  # an engine runs it too, whose frames look at nothing but their own journal
            seen.add(graph)
            with graph.editing():  # who edits it now has ended; who waits to will see that it has another journal
                graph._journal = journal
                waiting += [inner for block in graph.blocks.values() for _, inner in block.inner_graphs()]

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Keeps other threads from editing this graph, those around and inside it, and frames from reading them."""
        while True:
            journal = self._journal
            with journal.lock:
                if journal is not self._journal:  # it was put into another graph meanwhile
                    continue
                if journal.mailbox:
                    journal.deliver()
                yield
                return

    @contextmanager
    def adding(self, block: Any) -> Iterator[None]:
        """Keeps other threads from editing this graph and what is inside of a block that is to come into it.

        Two threads that put composites into each other do not wait for each other.
        """
        journals = {self._journal, *_journals_inside(block, ())}
        while True:
            if sum(journal.is_engines for journal in journals) > 1:  # threads may hold both, each wanting the other
                raise UsageError(f"another engine runs what is in `{block.name}`", where=caller_origin())
            with hold_locks(journals):
                needed = {self._journal, *_journals_inside(block, journals)}
                if needed <= journals:
                    with self.editing():
                        yield
                    return
            journals = needed  # further inside there are others, or a graph was put into another one meanwhile

    def add(self, block: AnyBlock) -> AnyBlock:
        """Adds a block; names are unique in a graph."""
        with self.adding(block):
            return self._add(block)

    @_edit
    def _add(self, block: AnyBlock) -> AnyBlock:
        if not isinstance(block, Block):
            raise UsageError(
                "not a block", where=caller_origin(), found=type(block).__name__, help="make one: lg.block(function)"
            )
        known = self.blocks.get(block.name)
        if known is not None:
            raise UsageError(f"block `{block.name}` already exists", where=caller_origin(), help="give it another name")
        # One that an interrupt kept from being put there is in none.
        if block.home is not None and block.home.blocks.get(block.name) is block:
            raise UsageError(
                f"block `{block.name}` is in a graph already", where=caller_origin(), help="remove it there"
            )
        self._require_room_for(block)
        self.journal.write("structure", Place(self, (block,)), "added")
        if self.journal.is_engines:  # before it is there: an interrupt leaves no block whose file nobody watches
            watches = (own.watch for own in with_inner_blocks(block) if own.watch is not None)
            self.journal.watches += [watch for watch in watches if watch not in self.journal.watches]
        block.home = self
        for label, inner in block.inner_graphs():
            inner.journal = self.journal
            if (block, label) not in inner.uses:
                inner.uses.append((block, label))
        self.blocks[block.name] = block  # last: from here on it is there
        return block

    @_edit
    def remove(self, block: Block) -> None:
        """Removes a block and its connections."""
        self._require(block)
        self.journal.write("structure", Place(self, tuple(with_inner_blocks(block))), "removed")
        for pin in (*self._fed_by(block), *block.inputs.values()):
            self._feed(pin, None)
        self._readers.pop(block, None)
        del self.blocks[block.name]  # until here, who removes it again after an interrupt does the rest
        block.home = None
        block.debug.state = "removed"
        for _, inner in block.inner_graphs():
            inner.uses = [use for use in inner.uses if use[0] is not block]
        self._let_go(block)

    def _let_go(self, block: Block) -> None:
        """Gives graphs that only a removed block has brought in a journal, and so a lock, of their own.

        A thread that puts them into another engine must not wait for one that edits this engine: that one may wait for
        the first.
        """
        own = Journal()
        inside = {graph for one in with_inner_blocks(block) for _, graph in one.inner_graphs()}
        for graph in inside:
            around = graphs_above([graph]) - inside
            if all(other._journal is not self._journal for other in around):
                graph._journal = own

    def _feed(self, target: Pin, source: Source | None) -> None:
        """Notes what feeds an input from now on."""
        before = self.sources.get(target)
        if isinstance(source, Edge):  # first: after an interrupt, some may be noted that are not fed
            self._readers.setdefault(source.source.block, set()).add(target)
        if source is None:
            self.sources.pop(target, None)
        else:
            self.sources[target] = source
        if isinstance(before, Edge) and not (isinstance(source, Edge) and source.source.block is before.source.block):
            self._readers.get(before.source.block, set()).discard(target)

    def _fed_by(self, block: Block) -> list[Pin]:
        """The inputs that an output of a block feeds."""
        known = ((pin, self.sources.get(pin)) for pin in self._readers.get(block, ()))
        return [pin for pin, source in known if isinstance(source, Edge) and source.source.block is block]

    @_edit
    def connect(self, source: Pin | Block, target: Pin) -> None:
        """Feeds an input with an output; a block stands for its only output."""
        output = only_output(source)
        self._require(output.block)
        self._require_input(target)
        if output.direction != "output":
            raise UsageError(f"`{output}` is not an output", where=caller_origin())
        if output.block.outputs.get(output.name) is not output:
            raise UsageError(f"`{output.block.name}` no longer has output `{output.name}`", where=caller_origin())
        self.journal.write("structure", target, f"`{target.name}` connected to `{output}`")
        self._feed(target, Edge(output))

    @_edit
    def disconnect(self, target: Pin) -> None:
        """Disconnects an input."""
        self._require_input(target)
        if target not in self.sources:
            raise UsageError(f"`{target}` is not connected", where=caller_origin())
        self.journal.write("structure", target, f"`{target.name}` disconnected")
        self._feed(target, None)

    def set(self, target: Pin, value: Any) -> None:
        """Gives an input a value: a number is a live parameter, an array is copied.

        A float in the place of a float is posted: whatever feeds the pin has been looked at before, and nobody waits.
        """
        before = self.sources.get(target) if target.__class__ is Pin else None
        if value.__class__ is float and before.__class__ is Setting and before.value.__class__ is float:  # type: ignore[union-attr]
            journal = None
            while journal is not self._journal:  # the graph may be put into another one meanwhile
                journal = self._journal
                with journal.posting:  # replaces a number that was not delivered yet; the thread with the lock goes on
                    journal.mailbox[target] = self._postbox, value
            return
        self._give(target, value)

    def _give_posted(self, target: Pin, value: float) -> None:
        """A number for a pin that something else feeds since: the edits came one after the other."""
        block = target.block
        if self.blocks.get(block.name) is block and block.inputs.get(target.name) is target:
            self._give(target, value)  # else the pin went while the number was on its way

    @_edit
    def _give(self, target: Pin, value: Any) -> None:
        self._require_input(target)
        before = self.sources.get(target)
        old = like = before if isinstance(before, Setting) else None
        if old is None:
            default = target.block.default_of(target.name)
            like = None if default is None else setting_of(default)
        fresh = setting_of(value, _number_held(target) if value.__class__ is int else None)
        known = old if before is not None else like
        fresh.line = known.line if known is not None and known.given == fresh.given else object()
        if old is None or (old.is_number != fresh.is_number):
            implied = before is None and like is not None and like.is_number and fresh.is_number
            detail = f"{describe_setting(like)} → {describe_setting(fresh)}" if implied and like is not None else "set"
            self.journal.write("rebind" if implied else "structure", target, detail)
            self._feed(target, fresh)
        elif old.given != fresh.given:
            self.journal.write("rebind", target, f"now {describe_setting(fresh)}")
            self.sources[target] = fresh
        elif not same_value(old.value, fresh.value):
            self.journal.write("value", target, f"{describe_setting(old)} → {describe_setting(fresh)}")
            self.sources[target] = fresh

    @_edit
    def bind(self, target: Pin, external: Any) -> ExternalBuffer:
        """Lets an input read memory that belongs to someone else."""
        self._require_input(target)
        own = external if isinstance(external, ExternalBuffer) else ExternalBuffer(external)
        kind = "rebind" if isinstance(self.sources.get(target), Binding) else "structure"
        self.journal.write(kind, target, f"bound to {own.array.dtype} {own.array.shape}")
        self._feed(target, Binding(own))
        return own

    @_edit
    def edit(self, block: Block, body: Body) -> None:
        """Gives a block another body. With the same pins this is a change of code, else of structure."""
        self._require(block)
        require_body(body)
        names = tuple(spec.name for spec in body.inputs), tuple(body.outputs)
        if names == (tuple(block.inputs), tuple(block.outputs)):
            self.journal.write("code", block, "new body")
            block.body = body
            return
        inputs = tuple(block.inputs.values())
        self.journal.write("structure", Place(self, (block,)), "new body with other pins")
        block._make_pins(*names)
        block.body = body
        block.shapes = {name: rule for name, rule in block.shapes.items() if name in block.outputs}
        outputs = set(block.outputs.values())
        lost = [pin for pin in self._fed_by(block) if self.sources[pin].source not in outputs]  # type: ignore[union-attr]
        for pin in (*lost, *(pin for pin in inputs if block.inputs.get(pin.name) is not pin)):
            self._feed(pin, None)

    def source_of(self, pin: Pin) -> Source | None:
        """What feeds an input: an edge, a value, external memory, or the value it has by default."""
        if pin.__class__ is not Pin:
            self._require_input(pin)
        found = self.sources.get(pin)
        if found is not None:
            return found
        default = pin.block.default_of(pin.name)
        if default is None:
            return None
        known = pin.default
        if known is None or known[0] is not default:  # the same setting every time: plans are compared by it
            known = pin.default = (default, setting_of(default))
        return known[1]

    def _require_room_for(self, block: Block) -> None:
        """Refuses a block that this graph is inside of, and one whose inside another engine runs."""
        inside = [inner for _, inner in block.inner_graphs()]
        above = graphs_above([self])
        if not above.isdisjoint(inside):
            raise UsageError(f"`{block.name}` cannot contain itself", where=caller_origin())
        shared = [graph for graph in inside if graph.uses]
        while inside:
            inner = (own.inner_graphs() for graph in inside for own in graph.blocks.values())
            inside = list(dict.fromkeys(graph for graphs in inner for _, graph in graphs))
            shared += [graph for graph in inside if len(graph.uses) > 1]
        engines = {graph for graph in (above | graphs_above(shared)) if graph.is_engine}
        if len(engines) > 1:
            raise UsageError(f"another engine already runs the contents of `{block.name}`", where=caller_origin())

    def _require(self, block: Block) -> None:
        require_block(block)
        if self.blocks.get(block.name) is not block:
            uses = () if block.home is None else block.home.uses
            inside = f"; it is inside of `{uses[0][0].name}`: expose the pin there" if uses else ""
            raise UsageError(
                f"block `{block.name}` is not in this graph{inside}",
                where=caller_origin(),
                help=None if inside else "add it with `add`",
            )

    def _require_input(self, pin: Pin) -> None:
        if not isinstance(pin, Pin):
            names = ", ".join(pin.inputs) if isinstance(pin, Block) else ""
            raise UsageError(
                "not an input",
                where=caller_origin(),
                expected='a pin: block["name"]' + (f" with one of {names}" if names else ""),
                found=f"the block `{pin.name}`" if isinstance(pin, Block) else type(pin).__name__,
            )
        self._require(pin.block)
        if pin.direction != "input" or pin.block.inputs.get(pin.name) is not pin:
            raise UsageError(f"`{pin}` is not an input", where=caller_origin())


def _journals_inside(block: Any, held: Collection[Journal]) -> set[Journal]:
    """The journals of the graphs inside of a block, as far as one can look with these locks."""
    found: set[Journal] = set()
    seen: set[Graph] = set()
    waiting = [graph for _, graph in block.inner_graphs()] if isinstance(block, Block) else []
    while waiting:
        graph = waiting.pop()
        found.add(graph._journal)
        if graph._journal in held and graph not in seen:
            seen.add(graph)
            waiting += [inner for own in graph.blocks.values() for _, inner in own.inner_graphs()]
    return found


def _number_held(target: Pin) -> Setting | None:
    """The number that an input holds: it was given, it is the default, or all inputs behind it hold floats.

    None where a block does not run as it is described: a float that it cannot take must not make floats of the integers
    that correct it.
    """
    held: list[Setting] = []
    waiting = [(target, False)]  # with whether something nearer decides
    while waiting:
        pin, is_decided = waiting.pop()
        block = pin.block
        if block.debug.refused:
            return None
        source = None if block.home is None else block.home.sources.get(pin)
        default = block.default_of(pin.name)
        if not is_decided and isinstance(source, Setting) and source.is_number:
            held.append(source)
            is_decided = True
        elif not is_decided and default is not None:
            held.append(setting_of(default))
        waiting += [(inner, is_decided) for inner in block.pins_behind(pin.name)]
    return held[0] if held and all(one.value.__class__ is float for one in held) else None


def with_inner_blocks(block: Block) -> Iterator[Block]:
    """A block, and the blocks inside of it, however deep; each once."""
    seen: set[Graph] = set()
    waiting = [block]
    while waiting:
        own = waiting.pop()
        yield own
        fresh = [graph for graph in dict.fromkeys(graph for _, graph in own.inner_graphs()) if graph not in seen]
        seen.update(fresh)
        waiting += [inner for graph in fresh for inner in graph.blocks.values()]


def graphs_above(graphs: Iterable[Graph]) -> set[Graph]:
    """These graphs and those that they are inside of."""
    found: set[Graph] = set()
    waiting = list(graphs)
    while waiting:
        graph = waiting.pop()
        if graph not in found:
            found.add(graph)
            waiting += [around.home for around, _ in graph.uses if around.home is not None]
    return found


def pin_names(names: Any, what: str) -> tuple[str, ...]:
    """Names of pins as a user gives them: a sequence, or one text for one pin.

    >>> pin_names("total", "outputs"), pin_names(["a", "b"], "outputs")
    (('total',), ('a', 'b'))
    """
    found = (names,) if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not all(isinstance(name, str) for name in found):
        expected = "a str, or a sequence of them"
        raise UsageError(
            f"names of {what} must be strings", where=caller_origin(), expected=expected, found=shown(names)
        )
    return tuple(found)


def only_output(source: Pin | Block) -> Pin:
    """A pin, or a block's only output."""
    if isinstance(source, Pin):
        return source
    if not isinstance(source, Block):
        raise UsageError(
            "neither a pin nor a block",
            where=caller_origin(),
            found=type(source).__name__,
            help='block["name"] is a pin',
        )
    if len(source.outputs) != 1:
        raise UsageError(
            f"`{source.name}` has {len(source.outputs)} outputs",
            where=caller_origin(),
            help='choose one: block["name"]',
        )
    return next(iter(source.outputs.values()))
