"""What feeds an input: an edge from an output, a value that was set, or external memory."""

from __future__ import annotations

from dataclasses import dataclass

from livegrad.live.graph.block import Block, Pin
from livegrad.live.graph.sources import Binding, Setting, setting_of


@dataclass(frozen=True)
class Edge:
    """A connection: the output that feeds an input."""

    source: Pin


Source = Edge | Setting | Binding


def comes_from(source: Source | None, block: Block) -> bool:
    return isinstance(source, Edge) and source.source.block is block


def source_exists(source: Source) -> bool:
    return not isinstance(source, Edge) or source.source.block.has(source.source)


def find_current_number(target: Pin) -> Setting | None:
    """The current number of an input: its value, its default, or the floats of all inner inputs behind it.

    None if the block was rejected: a user may correct an invalid float by an integer, which must stay an integer.
    """
    numbers: list[Setting] = []
    worklist = [(target, False)]  # inputs, and whether an outer pin has a value already
    while worklist:
        pin, is_decided = worklist.pop()
        block = pin.block
        if block.debug.is_rejected:
            return None
        source = None if block.home is None else block.home.sources.get(pin)
        default = block.default_of(pin.name)
        if not is_decided and isinstance(source, Setting) and source.is_number:
            numbers.append(source)
            is_decided = True
        elif not is_decided and default is not None:
            numbers.append(setting_of(default))
        worklist += [(inner, is_decided) for inner in block.pins_behind(pin.name)]
    return numbers[0] if numbers and all(number.value.__class__ is float for number in numbers) else None
