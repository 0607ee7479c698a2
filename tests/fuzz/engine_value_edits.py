"""Random edits of values: pins, bound memory, the clock and states."""

from __future__ import annotations

import numpy as np

import livegrad as lg
from tests.fuzz.engine_bodies import FEATURE
from tests.fuzz.engine_editor import PALETTES
from tests.fuzz.engine_graph_edits import GraphEdits, Spot, is_carried, is_data
from tests.fuzz.engine_model import Bound, Choice, Given, Leaf, Memory, Net, bound_to


class ValueEdits(GraphEdits):
    """Edits what a graph reads."""

    def set_some(self) -> bool:
        """Any value for any pin: kinds change between number, array and memory of ours."""
        spot = self._some_pin()
        if spot is None:
            return False
        net, node, pin = spot
        if not is_data(spot):
            if not isinstance(node, Memory) or self._often(0.1):
                self.feed(net, node, pin)
        else:
            self.set(net, node, pin, self.kind(), "set carried" if is_carried(node, pin) else "set")
        return True

    def set_parameter(self) -> bool:
        """Another value of the same kind."""
        spot = self._some_pin(lambda spot: isinstance(spot[0].sources.get(spot[1:]), Given))
        if spot is None:
            return False
        net, node, pin = spot
        if not is_data(spot):
            self.feed(net, node, pin)
            return True
        given = net.sources[node, pin]
        assert isinstance(given, Given)
        before = given.value
        kind = {float: "float", int: "int", bool: "bool"}.get(type(before))
        if kind is None:
            name = {"float32": "f32", "float64": "f64", "int64": "i64", "bool": "bool"}[before.dtype.name]
            kind = f"array {name}" if isinstance(before, np.ndarray) else name
            if kind == "bool":
                return False
        self.set(net, node, pin, kind, "set again")
        return True

    def give_pin_without_source(self) -> bool:
        """A number for a pin that has a default."""
        spot = self._some_pin(lambda s: s[1:] not in s[0].sources and s[1].default(s[2]) is not None)
        if spot is None:
            return False
        kind = type(spot[1].default(spot[2])).__name__
        self.set(*spot, kind if self._often(0.7) else self.kind(), "set default")
        return True

    def turn_inside_branch(self) -> bool:
        """Another number inside of a body that may be taken or not."""
        nodes = [node for net in self.alive() for node in net.nodes.values() if isinstance(node, Choice)]
        bodies = [body for node in nodes if node.kind in ("if", "if_else", "switch") for body in node.bodies.values()]
        spots: list[Spot] = [
            (body.net, node, pin)
            for body in bodies
            for node in body.net.nodes.values()
            for pin in node.inputs
            if node.default(pin) is not None and not self._is_exposed(body.net, node, pin)
        ]
        if not spots:
            return False
        net, node, pin = self.chance.choice(spots)
        self.set(net, node, pin, type(node.default(pin)).__name__, "set in branch")
        return True

    def control_some(self) -> bool:
        """What decides about a region: memory of ours, or another block."""
        spot = self._some_pin(lambda s: isinstance(s[1], Choice) and s[2] == s[1].control)
        if spot is None:
            return False
        net, node, pin = spot
        assert isinstance(node, Choice)
        if node.kind in ("if", "if_else", "switch") and self._often(0.5) and self.connect(net, node, pin):
            return True
        self.control_by_memory(net, node)
        return True

    def control_by_memory(self, net: Net, node: Choice) -> None:
        """Binds what decides about a region."""
        value = np.array(self.value("turns" if node.kind in ("for", "switch") else "bool"))
        external = lg.live.ExternalBuffer(value, version=self.chance.choice((None, 0)))
        self.graphs[net].bind(self.real[node][node.control], external)
        net.sources[node, node.control] = bound_to(external)
        self._note("bind control", net, value.dtype.name, f"bind {node.name}.{node.control} to {value!r}")

    def bind_some(self) -> bool:
        spot = self._some_pin(is_data)
        if spot is None:
            return False
        self.bind(*spot, self.kind() if self._often(0.5) else self._array_kind())
        return True

    def touch(self) -> bool:
        """Writes memory of ours, and says so."""
        sources = [(net, source) for net in self.alive() for source in net.sources.values()]
        bound = [(net, source.external) for net, source in sources if isinstance(source, Bound)]
        if not bound:
            return False
        self.write(*self.chance.choice(bound))
        return True

    def write(self, net: Net, external: lg.live.ExternalBuffer) -> None:
        """New contents for memory of ours."""
        most = 9 if external.array.ndim else 3  # it may say how often a loop runs
        numbers = [self.chance.randint(-3, most) for _ in range(external.array.size)]
        external.array[...] = np.array(numbers).reshape(external.array.shape)
        if external.version is not None:
            external.touch()
        self._note("touch" if external.version is not None else "write", net, external.array.dtype.name, "touch")

    def resize(self) -> bool:
        """An array of another size."""
        spot = self._some_pin(lambda s: isinstance(s[0].sources.get(s[1:]), Given | Bound) and is_data(s))
        if spot is None:
            return False
        net, node, pin = spot
        kind = self.chance.choice([kind for kind in PALETTES[self.main] if kind.startswith("array")])
        self.set(net, node, pin, kind, "resize")
        return True

    def set_time(self) -> bool:
        time = float(self.chance.randint(0, 9))
        self.engine.set_feature(FEATURE, time)
        self.time = time
        self._note("feature", self.net, "float", f"time {time}")
        return True

    def reset(self) -> bool:
        net = self._some_net()
        states = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if not states:
            return False
        self.reset_one(net, self.chance.choice(states))
        return True

    def reset_one(self, net: Net, state: Memory) -> None:
        """A state begins again."""
        self.engine.reset(self.real[state])
        self.resets[state] = state.initial
        self._note("reset", net, state.initial.dtype.name, f"reset {state.name}")

    def set_state(self) -> bool:
        net = self._some_net()
        states = [node for node in net.nodes.values() if isinstance(node, Memory)]
        if not states:
            return False
        self.give_state(net, self.chance.choice(states))
        return True

    def give_state(self, net: Net, state: Memory) -> None:
        """A state goes on from another value."""
        numbers = [self.chance.randint(-4, 9) for _ in range(state.initial.size)]
        value = np.array(numbers).reshape(state.initial.shape).astype(state.initial.dtype)
        self.engine.set(self.real[state], value.tolist() if self._often(0.3) else value)
        self.resets[state] = value
        self._note("state", net, value.dtype.name, f"state {state.name} = {value.tolist()}")

    def keep(self) -> bool:
        net = self._some_net()
        nodes = [node for node in net.nodes.values() if isinstance(node, Leaf)]
        if not nodes:
            return False
        node = self.chance.choice(nodes)
        self.engine.keep(self.real[node][self.chance.choice(node.outputs)])
        self._note("keep", net, node.body.family, f"keep {node.name}")
        return True
