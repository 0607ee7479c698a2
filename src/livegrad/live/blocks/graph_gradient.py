"""Gradients of live graphs: `lg.grad(of=pin, by=pins)` returns a block that users add, connect and read like any other.

In: an output and the pins to differentiate with respect to. Out: a `GradientBlock`. The graph compiler expands it to
one step for each block between those pins, which reads that block's inputs and the cotangents of its outputs. It
therefore follows every edit of the graph, and an edit of one block compiles only that block's derivative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.dimension import Dimension
from livegrad.ir.function import inline, make_function
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Type, differential_of, is_differentiable, scalar_of, shape_of
from livegrad.live.blocks.compose import differentiable_function, function_of
from livegrad.live.compile.flatten import DerivedBlock, PinResolver
from livegrad.live.compile.network import Network, NetworkNode, OutputRef, Ref, inputs_of, results_of
from livegrad.live.compile.topological_sort import sort_nodes
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block, InputSpec, Pin, Specialized, State, only_output
from livegrad.live.graph.composite import Composite
from livegrad.live.graph.problems import GraphError, PinError
from livegrad.live.graph.regions import Region
from livegrad.live.graph.sources import InputType
from livegrad.ops.rules import add_values, zero
from livegrad.passes.differentiate.lower import with_derivatives_written
from livegrad.passes.differentiate.reverse import pull_back
from livegrad.tensors.tracing import placeholders

By = Sequence[Pin | str] | Mapping[str, Pin | str] | Pin | str


def gradient_block(
    function: Block | Engine | None, *, of: Pin | Block | str | None, by: By, name: str
) -> GradientBlock:
    """Creates the gradient block of an output with respect to pins: `lg.grad` calls it if pins are passed."""
    owner = function if isinstance(function, Block) else None
    if owner is not None and of is None:
        of = only_output(owner)
    source = _pin(owner, of) if isinstance(of, str) else of
    if not isinstance(source, Pin | Block):
        raise UsageError("a gradient needs an output: pass of=...", where=caller_origin(), found=repr(of))
    pins_by_name = {"": by} if isinstance(by, Pin | str) else by
    pins = pins_by_name.values() if isinstance(pins_by_name, Mapping) else pins_by_name
    selected = [_pin(owner, pin) if isinstance(pin, str) else pin for pin in pins]
    names = (
        list(pins_by_name)
        if isinstance(pins_by_name, Mapping) and "" not in pins_by_name
        else [pin.name for pin in selected]
    )
    return GradientBlock(name, only_output(source), dict(zip(names, selected, strict=True)), len(selected))


def _pin(owner: Block | None, name: str) -> Pin:
    if owner is None:
        raise UsageError(
            f"`{name}` does not name a block",
            where=caller_origin(),
            help="pass pins, or pass the block as the first argument",
        )
    return owner[name]


class GradientBlock(DerivedBlock):
    """The derivative of an output with respect to other pins of the same graph, created by `grad`.

    >>> from livegrad.live.blocks import block
    >>> square = block(lambda x: x * x, name="square")
    >>> GradientBlock("slope", square["result"], {"x": square["x"]})
    <block slope(seed) -> x>
    """

    def __init__(self, name: str, of: Pin, by: Mapping[str, Pin], count: int | None = None) -> None:
        if of.direction != "output":
            raise UsageError(f"`{of}` is not an output", where=caller_origin(), help="differentiate a result")
        if not by:
            help = "name the pins: by=[block[...], ...]"
            raise UsageError("a gradient needs at least one pin in `by`", where=caller_origin(), help=help)
        if count is not None and count != len(by):
            help = 'give each a name: by={"name": pin}'
            raise UsageError("the pins in `by` need distinct names", where=caller_origin(), help=help)
        self.of, self.by = of, dict(by)
        self._set_up(name, ("seed",), tuple(by))

    def default_of(self, name: str) -> Any:
        return 1.0

    def find_primal_output(self, resolver: PinResolver) -> OutputRef | None:
        return resolver.output(self.of)

    def expand(
        self, key: str, feeds: dict[str, Ref | None], network: Network, resolver: PinResolver
    ) -> list[NetworkNode]:
        """Returns a node for each block of the backward pass, and one that sums the cotangents of each pin."""
        try:
            return _BackwardPass(self, key, feeds["seed"], network, resolver).nodes()
        except GraphError as error:
            return [NetworkNode(key, self, {}, derived_body=_FailingBody(key, tuple(self.by), error))]


def _require_pin(pin: Pin) -> None:
    """Raises if a pin no longer exists: a new body may have other pins, and a composite may no longer expose one."""
    pins = pin.block.outputs if pin.direction == "output" else pin.block.inputs
    if pin.name not in pins:
        raise GraphError(
            f"`{pin.block.name}` no longer has {pin.direction} `{pin.name}`",
            expected=f"one of {', '.join(pins)}" if pins else None,
            help="create the gradient again: lg.grad(of=..., by=...)",
        )
    if pin.direction == "output" and not _exists_inside(pin):
        raise GraphError(f"`{pin}` no longer exists: the block inside was removed, or has lost this output")


def _exists_inside(pin: Pin) -> bool:
    """Whether the inner output that a composite exposes still exists. Regions report this themselves."""
    while isinstance(pin.block, Composite) and not isinstance(pin.block, Region):
        inner = pin.block.inner_output(pin.name)
        if inner is None:
            return False
        pin = inner
    return True


class _BackwardPass:
    """The backward pass of a gradient block: the nodes between the pins, and the cotangents of their outputs."""

    def __init__(
        self, block: GradientBlock, key: str, seed: Ref | None, network: Network, resolver: PinResolver
    ) -> None:
        self.block, self.key, self.network = block, key, network
        for pin in (block.of, *block.by.values()):
            _require_pin(pin)
        of = resolver.output(block.of)
        self.of = self._require_inside(of, block.of)
        self.inputs: dict[str, list[tuple[str, str]]] = {}  # node inputs, for each output of the gradient
        self.outputs: dict[str, OutputRef] = {}
        for name, pin in block.by.items():
            if pin.direction == "output":
                self.outputs[name] = self._require_inside(resolver.output(pin), pin)
            else:
                inputs = resolver.inputs(pin)
                if inputs is None or any(node not in network.nodes for node, _ in inputs):
                    raise self._location_error(pin)
                self.inputs[name] = [*inputs, *self._derived_readers(inputs)]
        # The cotangents that reach each node output, to be summed.
        self.arriving: dict[OutputRef, list[Ref | None]] = {self.of: [seed]}

    def _derived_readers(self, inputs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The same inputs of derived nodes, which read the inputs of their primals, if the output depends on them.

        Higher derivatives need them.
        """
        ancestors = self._find_ancestors()
        derived: list[tuple[str, str]] = []
        worklist = list(inputs)
        while worklist:
            node, name = worklist.pop()
            readers = [(key, name) for key in self.network.followers.get(node, ())]
            derived += [(key, name) for key, name in readers if key in ancestors]
            worklist += readers
        return derived

    def _require_inside(self, ref: OutputRef | None, pin: Pin) -> OutputRef:
        if ref is None or ref.node not in self.network.nodes:
            raise self._location_error(pin)
        return ref

    def _location_error(self, pin: Pin) -> GraphError:
        help = (
            "a gradient must be in the same graph as its blocks; blocks inside a region cannot be reached from outside"
        )
        return GraphError(f"`{pin}` is not in the same graph as `{self.block.name}`", help=help)

    def nodes(self) -> list[NetworkNode]:
        """All derived nodes; the last one sums the cotangents of each pin."""
        active = self._find_active_inputs()
        reversed_nodes = [node for node in reversed(self._sorted_nodes()) if node.key in active]
        ancestors = self._find_ancestors()
        requested = {node for inputs in self.inputs.values() for node, _ in inputs}
        derived = []
        for primal in reversed_nodes:
            if primal.key in ancestors or primal.key in requested:
                derived.append(self._derive_node(primal, active[primal.key]))
        return [*derived, self._gather_node()]

    def _sorted_nodes(self) -> list[NetworkNode]:
        return [self.network.nodes[key] for key, _ in sort_nodes(self.network)[0]]

    def _find_active_inputs(self) -> dict[str, tuple[str, ...]]:
        """For each node that depends on the pins in `by`, the inputs through which it does."""
        direct: dict[str, set[str]] = {}
        for inputs in self.inputs.values():
            for node, name in inputs:
                direct.setdefault(node, set()).add(name)
        selected = set(self.outputs.values())
        active: dict[str, tuple[str, ...]] = {}
        for node in self._sorted_nodes():
            if isinstance(node.block, State):
                continue
            names = [
                name
                for name, ref in inputs_of(node).items()
                if name in direct.get(node.key, ())
                or (isinstance(ref, OutputRef) and (ref.node in active or ref in selected))
            ]
            if names:
                active[node.key] = tuple(names)
        return active

    def _find_ancestors(self) -> set[str]:
        """The nodes that the output depends on, including its own."""
        ancestors: set[str] = set()
        worklist = [self.of.node]
        while worklist:
            key = worklist.pop()
            if key not in ancestors and key in self.network.nodes:
                ancestors.add(key)
                worklist += [source for _, source in self.network.nodes[key].dependencies()]
        return ancestors

    def _derive_node(self, primal: NetworkNode, names: tuple[str, ...]) -> NetworkNode:
        """Makes the node that pulls cotangents back through a primal node. Registers its results with earlier nodes."""
        key = f"{self.key}/{primal.key}"
        feeds: dict[str, Ref | None] = dict(inputs_of(primal))
        arrow = "←"
        while any(arrow in name for name in feeds):
            arrow += "←"  # the cotangents of a derivative are among its inputs
        counts = []
        for output in results_of(primal):
            arriving = self.arriving.get(OutputRef(primal.key, output), [])
            feeds |= {f"{output}{arrow}{index}": ref for index, ref in enumerate(arriving)}
            counts.append(len(arriving))
        for name in names:
            ref = feeds[name]
            if isinstance(ref, OutputRef):
                self.arriving.setdefault(ref, []).append(OutputRef(key, f"{name}'"))
        body = _PullbackBody(key, primal, tuple(feeds), names, tuple(counts))
        return NetworkNode(key, self.block, feeds, derived_body=body, follows=primal.key)

    def _gather_node(self) -> NetworkNode:
        feeds: dict[str, Ref | None] = {}
        counts = []
        for name in self.block.by:
            if name in self.outputs:
                ref = self.outputs[name]
                arriving = self.arriving.get(ref, [])
                feeds[f"{name}"] = ref  # for its type, if there are no cotangents
            else:
                inputs = self.inputs[name]
                arriving = [OutputRef(f"{self.key}/{node}", f"{pin}'") for node, pin in inputs]
            feeds |= {f"{name}'{index}": ref for index, ref in enumerate(arriving)}
            counts.append((name in self.outputs, len(arriving)))
        body = _SumBody(self.key, tuple(self.block.by), tuple(feeds), tuple(counts))
        return NetworkNode(self.key, self.block, feeds, derived_body=body)


@dataclass(frozen=True)
class _FailingBody:
    """A body that raises an error when it is specialised."""

    name: str
    outputs: tuple[str, ...]
    error: GraphError
    inputs: tuple[InputSpec, ...] = ()

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        raise self.error


class _PullbackBody:
    """Maps the inputs of a node and the cotangents of its results to the cotangents of some of its inputs."""

    def __init__(
        self, name: str, primal: NetworkNode, feeds: tuple[str, ...], argnames: tuple[str, ...], counts: tuple[int, ...]
    ) -> None:
        self.name, self.argnames, self.counts = name, argnames, counts
        self.inputs = tuple(map(InputSpec, feeds))
        self.outputs = tuple(f"{name}'" for name in argnames)
        self._primal, self._feeds = primal, feeds
        self._input_count = len(feeds) - sum(counts)

    def of_primal(self, primal: NetworkNode) -> _PullbackBody:
        return _PullbackBody(self.name, primal, self._feeds, self.argnames, self.counts)

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        """The derivative of the current function of the primal node."""
        primal_types, arriving = input_types[: self._input_count], input_types[self._input_count :]
        specialized = function_of(self._primal, primal_types)
        function = differentiable_function(specialized)
        results = _repeat_by_count(function.result_types, self.counts)
        for spec, cotangent, type in zip(self.inputs[self._input_count :], arriving, results, strict=True):
            _require_cotangent(cotangent, type, dict(specialized.sizes), spec.name)
        positions = [index for index, spec in enumerate(self.inputs[: self._input_count]) if spec.name in self.argnames]
        useful = tuple(cotangent.weak or is_differentiable(cotangent.type) for cotangent in arriving)
        derived = _make_pullback(function, self._input_count, tuple(positions), self.counts, useful)
        return Specialized(derived, specialized.features, specialized.constants, specialized.sizes)


def _repeat_by_count(types: Sequence[Type], counts: Sequence[int]) -> list[Type]:
    return [type for type, count in zip(types, counts, strict=True) for _ in range(count)]


def _require_cotangent(cotangent: InputType, type: Type, sizes: Mapping[str, int], pin: str) -> None:
    if not is_differentiable(type) or not (cotangent.weak or is_differentiable(cotangent.type)):
        return
    shape = tuple(sizes.get(str(size), size) for size in shape_of(type))
    if cotangent.type.shape != shape or not (cotangent.weak or cotangent.type.element is scalar_of(type)):
        found = "a number" if cotangent.weak else str(cotangent.type)
        raise PinError(pin, f"a cotangent of {type}: differentiate one real number, or feed `seed`", found)


@lru_cache(maxsize=1024)
def _make_pullback(
    function: Function,
    input_count: int,
    positions: tuple[int, ...],
    counts: tuple[int, ...],
    useful: tuple[bool, ...],
) -> Function:
    """The derivative with respect to the inputs at `positions`, with `counts` cotangents for each result.

    Cached by the function, whose equality ignores its name, because several blocks may share it.
    """
    types = function.parameter_types
    active = tuple(index in positions and is_differentiable(type) for index, type in enumerate(types))
    cotangents = [differential_of(type) for type in _repeat_by_count(function.result_types, counts)]
    # No step reads the cotangent of a result that is not differentiable, such as an index or a condition.
    kinds = [
        differential if flag and is_differentiable(type) else type
        for differential, type, flag in zip(
            cotangents, _repeat_by_count(function.result_types, counts), useful, strict=True
        )
    ]
    inputs = placeholders([*types[:input_count], *kinds, *types[input_count:]])
    arguments = [*inputs[:input_count], *inputs[input_count + len(kinds) :]]
    supply = iter(zip(inputs[input_count : input_count + len(kinds)], useful, strict=True))
    sums = []
    for type, count in zip(function.result_types, counts, strict=True):
        arriving = [next(supply) for _ in range(count)]
        nodes = [node for node, flag in arriving if flag and is_differentiable(type)]
        sums.append(_add_all(nodes) if nodes else zero(differential_of(type)))
    gradients: Iterable[Node] = ()
    if any(active):
        gradients = inline(pull_back(with_derivatives_written(function), active), [*arguments, *sums])
    remaining = iter(gradients)
    gradient_of = {index: next(remaining) for index, flag in enumerate(active) if flag}
    results = [gradient_of.get(position, zero(types[position])) for position in positions]
    return make_function(f"{function.name}.back", inputs, results)


def _add_all(nodes: Sequence[Node]) -> Node:
    total = nodes[0]
    for node in nodes[1:]:
        total = add_values(total, node)
    return total


class _SumBody:
    """Sums the cotangents of each pin."""

    def __init__(
        self, name: str, outputs: tuple[str, ...], feeds: tuple[str, ...], counts: tuple[tuple[bool, int], ...]
    ) -> None:
        self.name, self.outputs, self.counts = name, outputs, counts
        self.inputs = tuple(map(InputSpec, feeds))

    def specialize(self, input_types: tuple[InputType, ...]) -> Specialized:
        """Sums the cotangents of each pin; zeros for pins without cotangents."""
        inputs: list[Node] = []
        results = []
        sizes: dict[str, int] = {}
        supply = iter(input_types)
        for output, (has_value, count) in zip(self.outputs, self.counts, strict=True):
            terms = [next(supply) for _ in range(has_value + count)]
            type = terms[0].type
            if not is_differentiable(type):
                raise GraphError(
                    f"there is no derivative with respect to `{output}`", expected="real numbers", found=str(type)
                )
            for term in terms[has_value:]:
                _require_cotangent(term, type, {}, output)
            # Sizes are symbolic, so that other sizes need no new code. A weak number (the seed, if an output is
            # differentiated with respect to itself) takes the type of the value.
            symbols = tuple(Dimension.symbol(f"{output}{axis}") for axis in range(len(type.shape)))
            sizes |= {str(symbol): int(size) for symbol, size in zip(symbols, type.shape, strict=True)}  # type: ignore[arg-type]
            nodes = placeholders([Tensor(type.element if term.weak else term.type.element, symbols) for term in terms])
            inputs += nodes
            arriving = [node for node in nodes[has_value:] if is_differentiable(node.type)]
            results.append(_add_all(arriving) if arriving else zero(nodes[0].type))
        return Specialized(make_function(self.name, inputs, results), sizes=tuple(sorted(sizes.items())))
