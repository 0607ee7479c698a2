"""Applies numbers, contents, features and values of states to the running plan, which they do not change.

`Applier` inherits it.
"""

from __future__ import annotations

from typing import Any

from livegrad.diagnostics import LivegradError
from livegrad.live.compile.flatten import find_keys
from livegrad.live.compile.propagate import require_number
from livegrad.live.compile.wire import number_in_memory
from livegrad.live.frame import Frame
from livegrad.live.graph.block import Pin
from livegrad.live.graph.block_graph import Graph
from livegrad.live.graph.journal import Entry, StateValue, describe_detail
from livegrad.live.graph.keys import pin_key
from livegrad.live.graph.problems import Problem
from livegrad.live.graph.sources import Setting, same_value
from livegrad.live.runtime import Runtime
from livegrad.live.transaction import Transaction
from livegrad.live.update.diff_plans import Level, StepChange
from livegrad.live.update.hot_parameters import HotParameters
from livegrad.ops.context import FeatureLevel


class ValueApplier:
    """The part of `Applier` that applies values."""

    _graph: Graph
    _runtime: Runtime
    _transaction: Transaction
    wanted_features: dict[FeatureLevel, Any]
    _features: dict[FeatureLevel, Any]
    _number_problems: dict[str, Problem]
    _hot_parameters: HotParameters

    def _apply_numbers(self, entries: list[Entry], frame: Frame) -> None:
        """Applies numbers, contents, features and values of states, which do not change the plan."""
        for entry in entries:
            if entry.kind == "feature":
                self._apply_feature(entry, frame)
            elif entry.kind == "state":
                self._apply_state(entry.subject, describe_detail(entry.detail))
            else:
                self._apply_value(entry, frame)

    def _apply_feature(self, entry: Entry, frame: Frame) -> None:
        assert self._runtime.executable is not None
        feature, value = entry.subject, self.wanted_features.get(entry.subject)
        before = self._features.get(feature)
        if value is None:
            if before is not None:  # otherwise an interrupt came before `set_feature` stored the value
                self._transaction.drop(self._features, feature)
                self._runtime.executable.set_feature(feature, None)
                self._touch(feature, Level.HOT, f"feature {feature}: removed", frame)
            return
        if before is not None and type(before) is type(value) and same_value(before, value):
            return
        self._transaction.set_entry(self._features, feature, value)
        self._runtime.executable.set_feature(feature, value)
        self._touch(feature, Level.HOT, f"feature {feature}: {before} → {value}", frame)

    def _apply_value(self, entry: Entry, frame: Frame) -> None:
        """Applies a number or contents at every use of a pin. A use with another source belongs to a pending update."""
        pin = entry.subject
        source = None if pin.block.home is None else pin.block.home.sources.get(pin)
        executable = self._runtime.executable
        assert executable is not None
        if not isinstance(source, Setting):
            return  # the source was removed, or replaced by another source that the plan already has
        nodes = find_keys(self._graph, pin.block)
        for node in nodes:
            key = pin_key(node, pin.name)
            if not self._replaces_running_value(key, pin, source):
                continue
            if key in self._number_problems:
                remaining = {other: problem for other, problem in self._number_problems.items() if other != key}
                self._set_attribute("_number_problems", remaining)
            level = self._set_value(node, key, pin, source)
            if level is not None:
                self._touch(key, level, f"{key}: {describe_detail(entry.detail)}", frame)
            if level is Level.HOT and len(nodes) == 1:
                self._hot_parameters.add(pin, key, executable)

    def _set_value(self, node: str, key: str, pin: Pin, source: Setting) -> Level | None:
        """Passes a value to the executable; None if it already has the value or cannot accept it."""
        executable = self._runtime.executable
        assert executable is not None
        plan, value = executable.plan, source.value
        if key in plan.parameters and source.is_number:
            before = plan.parameters[key]
            if before.__class__ is not value.__class__ or same_value(before, value):
                return None
            try:
                for type in plan.types_of_number(key):
                    require_number(value, type, key)
            except LivegradError as error:
                problem = Problem(node, pin.block, pin.name, error)
                self._set_attribute("_number_problems", {**self._number_problems, key: problem})
                return None
            self._transaction.set_entry(plan.parameters, key, value)
            executable.set_parameter(key, value)
            return Level.HOT
        if key not in plan.contents or (source.is_number and plan.buffers[key].shape):
            return None
        if source.is_number:  # a number that a captured call reads from memory
            contents = number_in_memory(value, plan.buffers[key].type)
            level = Level.WARM
        elif plan.buffers[key].type is source.input_type.type and not same_value(plan.contents[key], value):
            contents, level = value, Level.NONE
        else:
            return None
        self._transaction.set_entry(plan.contents, key, contents)
        executable.write(key, contents)
        return level

    def _waiting_states(self, entries: list[Entry]) -> list[Entry]:
        """The values of states that are not running yet, which will start from these values."""
        assert self._runtime.executable is not None
        running = {spec.owner for spec in self._runtime.executable.plan.states}
        return [entry for entry in entries if entry.kind == "state" and entry.subject.state not in running]

    def _apply_state(self, change: StateValue, action: str) -> None:
        assert self._runtime.executable is not None
        for spec in self._runtime.executable.plan.states:
            if spec.owner is change.state:  # otherwise the state is new, and will replace another with its name
                previous_values = self._transaction.states
                if spec.value not in previous_values:
                    previous_values[spec.value] = self._runtime.executable.read(spec.value)
                self._runtime.executable.write(spec.value, change.value)
                self._runtime.steady_states.discard(spec.key)
                self._runtime.touch(spec.value, f"{spec.key} was {action}")

    def _touch(self, operand: str | FeatureLevel, level: Level, cause: str, frame: Frame) -> None:
        """Records a change for the readers of a number, a feature or a buffer, and marks them as stale."""
        assert self._runtime.executable is not None
        for key in self._runtime.executable.plan.readers.get(operand, ()):
            change, highest, causes = frame.changes.get(key), level, cause
            if change is not None:
                highest = max(level, change.level)
                causes = cause if change.cause == cause else f"{change.cause}; {cause}"
            frame.changes[key] = StepChange(key, highest, causes)
            frame.level = max(frame.level, highest)
        self._runtime.touch(operand, cause)

    def _replaces_running_value(self, key: str, pin: Pin, source: Setting) -> bool:
        """Whether a value of a pin replaces the running plan's value with this key."""
        executable, compilation = self._runtime.executable, self._runtime.compilation
        assert executable is not None
        assert compilation is not None
        readers = executable.plan.readers.get(key, ())
        return bool(readers) and compilation.network.is_value_of(readers[0], key, pin, source)

    def _set_attribute(self, name: str, value: Any) -> None:
        """Sets an attribute through the transaction, which can roll it back."""
        self._transaction.set_attribute(self, name, value)
