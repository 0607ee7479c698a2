"""A graph of blocks under edit: blocks by name, and the source of each input.

Nothing here runs. Users edit it through `Engine`, which holds one `Graph`; the graph compiler turns it into a plan.
Every edit is written to the journal, which tells a frame what to examine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.graph.block import AnyBlock, Block, Body, Pin, only_output, require_block, require_body
from livegrad.live.graph.journal import Journal, Postbox, StructureChange, hold_locks
from livegrad.live.graph.nesting import graphs_above, journals_inside, require_room_for, with_inner_blocks
from livegrad.live.graph.sources import Binding, ExternalBuffer, Setting, describe_setting, same_value, setting_of


@dataclass(frozen=True)
class Edge:
    """An input that is fed by an output."""

    source: Pin


Source = Edge | Setting | Binding


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
        journals = {self._journal, *journals_inside(block, ())}
        while True:
            if sum(journal.is_engines for journal in journals) > 1:  # threads may hold both, each wanting the other
                raise UsageError(f"another engine runs what is in `{block.name}`", where=caller_origin())
            with hold_locks(journals):
                needed = {self._journal, *journals_inside(block, journals)}
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
        require_room_for(self, block)
        self.journal.write("structure", StructureChange(self, (block,)), "added")
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
        self.journal.write("structure", StructureChange(self, tuple(with_inner_blocks(block))), "removed")
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
        self.journal.write("structure", StructureChange(self, (block,)), "new body with other pins")
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
