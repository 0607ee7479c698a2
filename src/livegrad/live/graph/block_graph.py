"""A graph of blocks under edit: blocks by name, and the source of each input.

A graph executes nothing. Users edit it through `Engine`, which holds one `Graph`; the graph compiler turns it into a
plan. Every edit is written to the journal, which tells a frame what to examine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any, Concatenate, ParamSpec, TypeVar

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.live.graph.block import AnyBlock, Block, Body, Pin, only_output, require_block, require_body, require_name
from livegrad.live.graph.edges import Edge, Source, comes_from, find_current_number, source_exists
from livegrad.live.graph.journal import Journal, Postbox, StructureChange, hold_locks
from livegrad.live.graph.nesting import graphs_above, journals_inside, require_addable, with_inner_blocks
from livegrad.live.graph.sources import Binding, ExternalBuffer, Setting, describe_setting, same_value, setting_of

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _edit(
    method: Callable[Concatenate[Graph, Arguments], Result],
) -> Callable[Concatenate[Graph, Arguments], Result]:
    """Makes a method an edit of the graph: only one at a time, and none while a frame reads the description.

    An edit writes to the journal first, so an interrupt may leave an entry without a change, but never a change
    without an entry.
    """

    @wraps(method)
    def edit(graph: Graph, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        with graph.editing():
            journal = graph.journal
            if journal.history is None and journal.observer is None and not journal.listeners:
                return method(graph, *arguments, **named)
            with journal.notify_observer(name, graph, *arguments, *named.values()):
                return method(graph, *arguments, **named)

    name = {"_add": "add", "_set_value": "set", "_rename": "rename", "restore": "set"}.get(
        method.__name__, method.__name__
    )
    return edit


class Graph:
    """Blocks by name, and the sources of their inputs. Threads may edit it concurrently."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.blocks: dict[str, Block] = {}
        self.sources: dict[Pin, Source] = {}
        self.dormant: dict[Pin, Source] = {}  # sources of removed pins, restored when another edit adds the pin again
        self._readers: dict[Block, set[Pin]] = {}  # pins that a block feeds; may include pins that it no longer feeds
        self._last_serial = 0
        self.is_engine = False  # whether this is the top graph of an engine
        self.uses: list[tuple[Block, str]] = []  # the blocks that contain this graph, each with the label of the body
        self._journal = journal or Journal()
        self._postbox = Postbox(self.sources, self._set_posted, self)
        self._silent_postbox = Postbox(self.sources, self._set_posted, self, is_recorded=False)

    @property
    def journal(self) -> Journal:
        return self._journal

    @journal.setter
    def journal(self, journal: Journal) -> None:
        worklist, visited = [self], set[Graph]()
        while worklist:
            graph = worklist.pop()
            if graph in visited or (graph._journal.belongs_to_engine and not journal.belongs_to_engine):
                continue  # another engine runs it, whose frames read only their own journal
            visited.add(graph)
            with graph.editing():  # running edits have ended, and waiting ones will find the other journal
                graph._journal = journal
                worklist += [inner for block in graph.blocks.values() for _, inner in block.inner_graphs()]

    @contextmanager
    def editing(self) -> Iterator[None]:
        """Keeps other threads from editing this graph, graphs around and inside it, and frames from reading them."""
        while True:
            journal = self._journal
            with journal.lock:
                if journal is not self._journal:  # the graph was added to another one meanwhile
                    continue
                if journal.mailbox:
                    journal.deliver()
                yield
                return

    @contextmanager
    def adding(self, block: Any) -> Iterator[None]:
        """Keeps other threads from editing this graph, and the inside of a block that is about to be added.

        Two threads that add composites to each other do not deadlock.
        """
        journals = {self._journal, *journals_inside(block, ())}
        while True:
            if sum(journal.belongs_to_engine for journal in journals) > 1:  # waiting for both could deadlock
                raise UsageError(f"another engine already runs the contents of `{block.name}`", where=caller_origin())
            with hold_locks(journals):
                needed = {self._journal, *journals_inside(block, journals)}
                if needed <= journals:
                    with self.editing():
                        yield
                    return
            journals = needed  # deeper graphs have other journals, or a graph was moved meanwhile

    def add(self, block: AnyBlock) -> AnyBlock:
        """Adds a block; names are unique in a graph."""
        with self.adding(block):
            return self._add(block)

    @_edit
    def _add(self, block: AnyBlock) -> AnyBlock:
        if not isinstance(block, Block):
            raise UsageError(
                "not a block", where=caller_origin(), found=type(block).__name__, help="create one: lg.block(function)"
            )
        namesake = self.blocks.get(block.name)
        if namesake is not None:
            raise UsageError(f"block `{block.name}` already exists", where=caller_origin(), help="give it another name")
        # After an interrupted `add`, a block has a home that does not contain it.
        if block.home is not None and block.home.blocks.get(block.name) is block:
            raise UsageError(
                f"block `{block.name}` is already in a graph",
                where=caller_origin(),
                help="remove it from that graph first",
            )
        require_addable(self, block)
        self.journal.write("structure", StructureChange(self, (block,)), "added")
        if self.journal.belongs_to_engine:  # before the block is added: an interrupt leaves no block without its watch
            watches = (inner_block.watch for inner_block in with_inner_blocks(block) if inner_block.watch is not None)
            self.journal.watches += [watch for watch in watches if watch not in self.journal.watches]
        self._last_serial += 1
        block.home, block.serial = self, self._last_serial
        for label, inner in block.inner_graphs():
            inner.journal = self.journal
            if (block, label) not in inner.uses:
                inner.uses.append((block, label))
        self.blocks[block.name] = block  # last: this adds the block
        return block

    @_edit
    def remove(self, block: Block) -> None:
        """Removes a block and its connections."""
        self._require(block)
        self.journal.write("structure", StructureChange(self, tuple(with_inner_blocks(block))), "removed")
        for pin in (*self._pins_fed_by(block), *block.inputs.values()):
            self._set_source(pin, None)
        self._readers.pop(block, None)
        for pin in [pin for pin, source in self.dormant.items() if pin.block is block or comes_from(source, block)]:
            del self.dormant[pin]
        del self.blocks[block.name]  # if an interrupt comes first, removing the block again does the rest
        block.home = None
        block.debug.state = "removed"
        for _, inner in block.inner_graphs():
            inner.uses = [use for use in inner.uses if use[0] is not block]
        self._release_journals(block)

    @_edit
    def _rename(self, block: Block, name: str) -> None:
        """Gives a block another name. `Engine.rename` calls it, and keeps the values of states."""
        require_block(block)
        if self.blocks.get(block.name) is not block and block not in self.blocks.values():
            self._require(block)  # raises
        require_name(name)
        if self.blocks.get(name) not in (None, block):
            raise UsageError(f"block `{name}` already exists", where=caller_origin(), help="give it another name")
        self.journal.write("structure", StructureChange(self, tuple(with_inner_blocks(block))), "renamed")
        # If an interrupt comes in between, renaming the block again does the rest.
        block.name = name
        self.blocks = {other.name if other is block else key: other for key, other in self.blocks.items()}

    def reorder(self, block: Block, serial: int) -> None:
        """Puts a block that was added again where it was before. Blocks are in the order of their serial numbers."""
        block.serial = serial
        self.blocks = dict(sorted(self.blocks.items(), key=lambda item: item[1].serial))

    @_edit
    def suspend(self, target: Pin, source: Source) -> None:
        """Gives an input a dormant source, which it takes when an edit adds the missing pin."""
        self.dormant[target] = source

    def _release_journals(self, block: Block) -> None:
        """Gives graphs that have left this engine their own journal, and thereby their own lock.

        Otherwise a thread that adds them to another engine would wait for edits of this engine, which could deadlock.
        """
        journal = Journal()
        inside = {graph for inner_block in with_inner_blocks(block) for _, graph in inner_block.inner_graphs()}
        for graph in inside:
            enclosing = graphs_above([graph]) - inside
            if all(other._journal is not self._journal for other in enclosing):
                graph._journal = journal

    def _set_source(self, target: Pin, source: Source | None) -> None:
        """Sets or removes the source of an input. Drops its dormant source."""
        previous = self.sources.get(target)
        self.dormant.pop(target, None)
        if isinstance(source, Edge):  # first: an interrupt may leave an extra reader, but never omit one
            self._readers.setdefault(source.source.block, set()).add(target)
        if source is None:
            self.sources.pop(target, None)
        else:
            self.sources[target] = source
        if isinstance(previous, Edge) and not (
            isinstance(source, Edge) and source.source.block is previous.source.block
        ):
            self._readers.get(previous.source.block, set()).discard(target)

    def _pins_fed_by(self, block: Block) -> list[Pin]:
        """The inputs that the outputs of a block feed."""
        return [pin for pin in self._readers.get(block, ()) if comes_from(self.sources.get(pin), block)]

    def follow_pins(self, block: Block) -> None:
        """Makes the sources of removed pins dormant, and restores the dormant sources of pins that exist again.

        Called after the pins of a block have changed. A dormant source is lost when its pin gets another source, or
        when one of its blocks is removed.
        """
        orphaned = [pin for pin in block.all_pins() if pin in self.sources and not block.has(pin)]
        for pin in (*orphaned, *(pin for pin in self._pins_fed_by(block) if not source_exists(self.sources[pin]))):
            source = self.sources[pin]
            self.journal.write("structure", pin, f"`{pin.name}` is dormant")
            self._set_source(pin, None)
            self.dormant[pin] = source
        for pin, source in list(self.dormant.items()):
            is_affected = pin.block is block or comes_from(source, block)
            if is_affected and pin.block.has(pin) and source_exists(source):
                self.journal.write("structure", pin, f"`{pin.name}` is connected again")
                self._set_source(pin, source)

    @_edit
    def connect(self, source: Pin | Block, target: Pin) -> None:
        """Connects an output to an input. Passing a block means its only output."""
        output = only_output(source)
        self._require(output.block)
        self._require_input(target)
        if output.direction != "output":
            raise UsageError(f"`{output}` is not an output", where=caller_origin())
        if not output.block.has(output):
            raise UsageError(f"`{output.block.name}` no longer has output `{output.name}`", where=caller_origin())
        self.journal.write("structure", target, f"`{target.name}` connected to `{output}`")
        self._set_source(target, Edge(output))

    @_edit
    def disconnect(self, target: Pin) -> None:
        """Disconnects an input."""
        self._require_input(target)
        if target not in self.sources and target not in self.dormant:
            raise UsageError(f"`{target}` is not connected", where=caller_origin())
        self.journal.write("structure", target, f"`{target.name}` disconnected")
        self._set_source(target, None)

    def set(self, target: Pin, value: Any) -> None:
        """Sets the value of an input: a number is a live parameter, an array is copied.

        A float that replaces a float is posted to the mailbox: the pin was checked before, and no lock is needed.
        """
        before = self.sources.get(target) if target.__class__ is Pin else None
        if value.__class__ is float and before.__class__ is Setting and before.value.__class__ is float:  # type: ignore[union-attr]
            journal = None
            while journal is not self._journal:  # the graph may be added to another one meanwhile
                journal = self._journal
                history, postbox = journal.history, self._postbox
                if history is not None and history.silent_threads and get_ident() in history.silent_threads:
                    postbox = self._silent_postbox
                with journal.posting:  # replaces an undelivered number
                    journal.mailbox[target] = postbox, value
            for listener in self._journal.listeners:
                listener.edited("set", (target, value))
            return
        self._set_value(target, value)

    def _set_posted(self, target: Pin, value: float) -> None:
        """Sets a posted number whose pin has received another source in the meantime."""
        block = target.block
        if self.blocks.get(block.name) is block and block.has(target):
            self._set_value(target, value)  # otherwise the pin was removed in the meantime

    @_edit
    def _set_value(self, target: Pin, value: Any) -> None:
        self._require_input(target)
        like = find_current_number(target) if value.__class__ is int else None
        self._apply_setting(target, setting_of(value, like))

    @_edit
    def restore(self, target: Pin, value: Any) -> None:
        """Sets a saved value: an integer stays an integer, even if the default of the input is a float."""
        self._require_input(target)
        self._apply_setting(target, setting_of(value))

    def _apply_setting(self, target: Pin, setting: Setting) -> None:
        before = self.sources.get(target)
        current = before if isinstance(before, Setting) else None
        default = target.block.default_of(target.name) if before is None else None
        replaced = current if default is None else setting_of(default)
        setting.lineage = (
            replaced.lineage if replaced is not None and replaced.input_type == setting.input_type else object()
        )
        if current is None or current.is_number != setting.is_number:
            if before is None and replaced is not None and replaced.is_number and setting.is_number:
                self.journal.write("rebind", target, f"{describe_setting(replaced)} → {describe_setting(setting)}")
            else:
                self.journal.write("structure", target, "set")
            self._set_source(target, setting)
        elif current.input_type != setting.input_type:
            self.journal.write("rebind", target, f"now {describe_setting(setting)}")
            self.sources[target] = setting
        elif not same_value(current.value, setting.value):
            self.journal.write("value", target, f"{describe_setting(current)} → {describe_setting(setting)}")
            self.sources[target] = setting

    @_edit
    def bind(self, target: Pin, external: Any) -> ExternalBuffer:
        """Binds an input to external memory."""
        self._require_input(target)
        buffer = external if isinstance(external, ExternalBuffer) else ExternalBuffer(external)
        kind = "rebind" if isinstance(self.sources.get(target), Binding) else "structure"
        self.journal.write(kind, target, f"bound to {buffer.array.dtype} {buffer.array.shape}")
        self._set_source(target, Binding(buffer))
        return buffer

    @_edit
    def edit(self, block: Block, body: Body) -> None:
        """Replaces the body of a block. This is a change of code if the pins stay the same, otherwise of structure.

        Connections and values of pins that the new body lacks are dormant: they return with the pin.
        """
        self._require(block)
        require_body(body)
        names = tuple(spec.name for spec in body.inputs), tuple(body.outputs)
        if names == (tuple(block.inputs), tuple(block.outputs)):
            self.journal.write("code", block, "new body")
            block.body = body
            return
        self.journal.write("structure", StructureChange(self, (block,)), "new body with other pins")
        block._make_pins(*names)
        block.body = body
        block.shapes = {name: rule for name, rule in block.shapes.items() if name in block.outputs}
        self.follow_pins(block)

    def source_of(self, pin: Pin) -> Source | None:
        """The source of an input: an edge, a value, external memory, or its default."""
        if pin.__class__ is not Pin:
            self._require_input(pin)
        source = self.sources.get(pin)
        if source is not None:
            return source
        default = pin.block.default_of(pin.name)
        if default is None:
            return None
        cached = pin.default
        if cached is None or cached[0] is not default:  # cached, because plans compare settings by identity
            cached = pin.default = (default, setting_of(default))
        return cached[1]

    def _require(self, block: Block) -> None:
        require_block(block)
        if self.blocks.get(block.name) is not block:
            uses = () if block.home is None else block.home.uses
            inside = f"; it is inside `{uses[0][0].name}`: expose the pin there" if uses else ""
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
        if pin.direction != "input" or not pin.block.has(pin):
            raise UsageError(f"`{pin}` is not an input", where=caller_origin())


def feeds_of(graph: Graph, block: Block) -> tuple[dict[Pin, Source], dict[Pin, Source]]:
    """The sources, and the dormant sources, that the removal of a block would remove."""
    pins = (*graph._pins_fed_by(block), *block.inputs.values())
    feeds = {pin: source for pin in pins if (source := graph.sources.get(pin)) is not None}
    dormant = graph.dormant.items()
    return feeds, {pin: source for pin, source in dormant if pin.block is block or comes_from(source, block)}
