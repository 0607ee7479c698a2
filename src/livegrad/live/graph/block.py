"""Blocks, the nodes of a live graph: a body, and pins for its inputs and outputs.

A block only describes work. `block_graph.py` connects blocks, `composite.py` nests graphs, and the graph compiler
specialises the bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from livegrad.diagnostics import LivegradError, UsageError, caller_origin, shown
from livegrad.ir.node import Function
from livegrad.ir.types import Tensor, Type, scalar_of_dtype
from livegrad.live.graph.captured_call import CapturedCall
from livegrad.live.graph.control import Control, require_control
from livegrad.live.graph.gradient_source import GradientSource
from livegrad.live.graph.sources import InputType, Numbers, Setting, array_of, with_default_type
from livegrad.live.graph.user_kernel import CudaKernel
from livegrad.ops.context import FeatureLevel
from livegrad.runtime.arguments import array_argument

if TYPE_CHECKING:
    from livegrad.live.graph.block_graph import Graph


@dataclass(frozen=True)
class InputSpec:
    """An input of a body: its name, its type (None: any), its default, and its control, if it declares one."""

    name: str
    type: Type | None = None
    default: Any = None
    control: Control | None = None


@dataclass(frozen=True)
class Specialized:
    """A body specialised for input types.

    The function takes the inputs, then `features`, then `constants`. `sizes` are the values of its symbolic sizes. A
    library call is not a function of the value IR and takes the inputs only.
    """

    function: Function | CapturedCall | CudaKernel
    features: tuple[FeatureLevel, ...] = ()
    constants: tuple[Numbers, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()


class Body(Protocol):
    """What a block computes. Equal input types must give equal (best: identical) results."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[InputSpec, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized: ...


PinDirection = Literal["input", "output"]


@dataclass(eq=False)
class Pin(GradientSource):
    """One input or output of a block: `block["name"]`."""

    block: Block
    name: str
    direction: PinDirection
    default: tuple[Any, Setting] | None = field(default=None, repr=False)  # the default and its setting, cached
    own_control: Control | None = field(default=None, repr=False)  # None: that of the body or of the pins inside

    def __repr__(self) -> str:
        return f"{self.block.name}.{self.name}"

    @property
    def control(self) -> Control | None:
        """How a panel shows this input: the control that was assigned, or else that of the function's annotation.

        A pin that a composite exposes has the control of the pin inside. Assign None to remove an assigned control.
        """
        if self.own_control is not None or self.direction == "output":
            return self.own_control
        return self.block.control_of(self.name)

    @control.setter
    def control(self, control: Control | None) -> None:
        require_control(control)
        if self.direction == "output":
            what, help = f"`{self}` is an output", "only inputs have controls"
            raise UsageError(what, where=caller_origin(), help=help)
        with self.block.changing_appearance("control", self, control):
            self.own_control = control


@dataclass(eq=False)
class Tally:
    """The run count of a set of steps, shared by all blocks in the set."""

    times: int = 0
    is_over: bool = False  # True: the set no longer runs


@dataclass
class Debug:
    """What the engine reports about a block: its state, and errors."""

    state: Literal["new", "running", "failed", "removed"] = "new"
    errors: list[LivegradError] = field(default_factory=list)
    is_rejected: bool = False  # True: the description is invalid; False: the block may have failed while it ran
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of the last run, while profiling is on
    untallied_runs: int = 0  # runs that no tally counts
    tallies: list[Tally] = field(default_factory=list, repr=False)

    @property
    def runs(self) -> int:
        """How often the step ran."""
        return self.untallied_runs + sum(tally.times for tally in self.tallies)

    def join(self, tally: Tally) -> None:
        """Shares a tally from now on. Adds the runs of tallies that are over to the block's own count."""
        for finished in [tally for tally in self.tallies if tally.is_over]:
            self.tallies.remove(finished)
            self.untallied_runs += finished.times
        self.tallies.append(tally)


class Watch(Protocol):
    """Edits a block when something outside has changed. The engine polls it before each frame."""

    @property
    def block(self) -> Block: ...
    # A problem of every frame until it is fixed; the last code keeps running.
    @property
    def error(self) -> LivegradError | None: ...
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
    home: Graph | None = None  # the graph that contains it
    serial: int = 0  # the order in its graph
    is_read: bool = False  # whether a user has read one of its results
    watch: Watch | None = None  # follows files while the block is in an engine
    _position: tuple[float, float] | None = None

    def __init__(self, body: Body, name: str | None = None, shapes: Mapping[str, str] | None = None) -> None:
        require_body(body)
        self.body = body
        inputs = [spec.name for spec in body.inputs]
        self._set_up(body.name if name is None else name, inputs, body.outputs)
        self.shapes = _shape_rules(self, shapes)

    def _set_up(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Initialises what all kinds of blocks share. Kinds without a body call it instead of `Block.__init__`."""
        self.name = name
        self.debug = Debug()
        self.shapes: dict[str, str] = {}
        self._pins: dict[tuple[str, PinDirection], Pin] = {}  # current and former pins
        self._make_pins(inputs, outputs)

    def _make_pins(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Sets the pins of the block. Pins keep their identity, because users hold them."""
        names = [*inputs, *outputs]
        for name in (self.name, *names):
            require_name(name)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(
                f"the pins of `{self.name}` need distinct names", where=caller_origin(), found=", ".join(twice)
            )
        self.inputs = {name: self.pin_named(name, "input") for name in inputs}
        self.outputs = {name: self.pin_named(name, "output") for name in outputs}

    def pin_named(self, name: str, direction: PinDirection) -> Pin:
        """The pin with this name, even if an edit removed it: a pin that is added again is the same object."""
        pin = self._pins.get((name, direction))
        if pin is None:
            pin = self._pins[name, direction] = Pin(self, name, direction)
        return pin

    def all_pins(self) -> Iterable[Pin]:
        """The current and former pins of the block."""
        return self._pins.values()

    def has(self, pin: Pin) -> bool:
        """Whether the block has this pin now."""
        if not isinstance(pin, Pin):
            raise UsageError("`has` takes a pin", where=caller_origin(), found=shown(pin))
        return (self.inputs if pin.direction == "input" else self.outputs).get(pin.name) is pin

    def __getitem__(self, name: str) -> Pin:
        pin = self.inputs.get(name) or self.outputs.get(name)
        if pin is None:
            raise UsageError(
                f"block `{self.name}` has no pin `{name}`",
                where=caller_origin(),
                expected="one of " + ", ".join([*self.inputs, *self.outputs]),
            )
        return pin

    def inner_graphs(self) -> Iterator[tuple[str, Graph]]:
        """The inner graphs, with the path component for the names of their blocks."""
        return iter(())

    def pins_behind(self, name: str) -> Sequence[Pin]:
        """The inner inputs that an input feeds."""
        return ()

    def default_of(self, name: str) -> Any:
        """The default of an input; None if it must be connected or set."""
        return next((spec.default for spec in self.body.inputs if spec.name == name), None)

    def control_of(self, name: str) -> Control | None:
        """The control that the body, or a pin inside, declares for an input."""
        body: Body | None = vars(self).get("body")  # composites and states have none
        declared = () if body is None else (spec.control for spec in body.inputs if spec.name == name)
        inner = (pin.control for pin in self.pins_behind(name))
        return next((control for control in (*declared, *inner) if control is not None), None)

    @property
    def position(self) -> tuple[float, float] | None:
        """Where drawings show the block; computation ignores it."""
        return self._position

    @position.setter
    def position(self, position: tuple[float, float] | None) -> None:
        if position is not None:
            position = require_position(position)
        with self.changing_appearance("move", self, position):
            self._position = position

    @contextmanager
    def changing_appearance(self, edit: str, *arguments: Any) -> Iterator[None]:
        """Notifies listeners of a change that computation ignores."""
        if self.home is None:
            yield
            return
        with self.home.editing(), self.home.journal.notify_observer(edit, self.home, *arguments):
            yield

    def __repr__(self) -> str:
        return f"<block {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs) or 'nothing'}>"


AnyBlock = TypeVar("AnyBlock", bound=Block)


def require_position(position: Any) -> tuple[float, float]:
    """Two finite numbers as a position; raises for anything else."""
    is_pair = isinstance(position, Sequence | np.ndarray) and len(position) == 2
    try:
        x, y = map(float, position) if is_pair else (nan, nan)
    except (TypeError, ValueError, OverflowError):
        x = y = nan
    if not (isfinite(x) and isfinite(y)):
        help = "write block.position = x, y"
        raise UsageError(
            "not a position", where=caller_origin(), expected="two numbers", found=shown(position), help=help
        )
    return x, y


def require_block(block: Any) -> None:
    """Raises unless this is a block; users often pass the name of one."""
    if not isinstance(block, Block):
        found = shown(block) if isinstance(block, str) else type(block).__name__
        help = "pass the block that `add` returned"
        raise UsageError("not a block", where=caller_origin(), expected="a Block", found=found, help=help)


def require_name(name: Any) -> None:
    """Raises unless this can be the name of a block or a pin."""
    if not isinstance(name, str) or not name:
        what = "blocks and pins need names" if isinstance(name, str) else "a name must be a string"
        raise UsageError(what, where=caller_origin(), expected="a str", found=repr(name))


def require_body(body: Any) -> None:
    """Raises unless this is a body; users often pass a function."""
    if not all(hasattr(body, part) for part in ("inputs", "outputs", "specialize")):
        help = "lg.block(function) creates a block; lg.live.edit(engine, block, function) replaces its function"
        raise UsageError("not a body", where=caller_origin(), found=type(body).__name__, help=help)


def _shape_rules(block: Block, shapes: Any) -> dict[str, str]:
    """Checks and copies the shape rules of a block, by output."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        found, help = type(shapes).__name__, 'write shapes={"result": "same(0)"}'
        raise UsageError(
            "shapes must map outputs to rules", where=caller_origin(), expected="a dict", found=found, help=help
        )
    for name, rule in shapes.items():
        if name not in block.outputs:
            expected = f"one of {', '.join(block.outputs) or 'none'}"
            raise UsageError(f"`{block.name}` has no output `{name}`", where=caller_origin(), expected=expected)
        if not isinstance(rule, str):
            found = shown(rule)
            raise UsageError(f"the rule of output `{name}` must be a string", where=caller_origin(), found=found)
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
        self.initial: Numbers = array_of(with_default_type(initial))
        self._set_up(name, ("next",), ("value",))

    def default_of(self, name: str) -> Any:
        return None

    def value_of(self, value: Any) -> Numbers:
        """Returns a copy of a value with the type and shape of the state; arrays must already have its type."""
        initial = self.initial
        type = Tensor(scalar_of_dtype(initial.dtype), initial.shape)
        array = array_argument(value, type, f"the value of state `{self.name}`")
        if array.shape != initial.shape:
            raise UsageError(
                f"the value of state `{self.name}` does not fit",
                where=caller_origin(),
                expected=str(type),
                found=f"shape {array.shape}",
                help="a state keeps its shape; to change it, remove the state and add a new one",
            )
        return np.array(array)


def pin_names(names: Any, what: str) -> tuple[str, ...]:
    """Checks names of pins, which a user passes as a sequence, or as one string for one pin.

    >>> pin_names("total", "outputs"), pin_names(["a", "b"], "outputs")
    (('total',), ('a', 'b'))
    """
    sequence = (names,) if isinstance(names, str) else names
    if not isinstance(sequence, Sequence) or not all(isinstance(name, str) for name in sequence):
        expected = "a str, or a sequence of them"
        raise UsageError(
            f"names of {what} must be strings", where=caller_origin(), expected=expected, found=shown(names)
        )
    return tuple(sequence)


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
