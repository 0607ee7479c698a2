"""Everything that is wrong with a description, each at its block: what the engine has to report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.engine_model import DANGLING, Bound, Carry, Choice, Instance, Memory, Node, Output, Root, order_of
from tests.fuzz.engine_values import Misfit, Val, of_python

ANY = "*"  # a pin, or the block as a whole


@dataclass
class Findings:
    """Problems as (path, block, pin): those that must be reported, and those that may be."""

    required: set[tuple[str, Node, str | None]] = field(default_factory=set)
    allowed: set[tuple[str, Node]] = field(default_factory=set)

    @property
    def ok(self) -> bool:
        return not self.required


class Checker:
    """Types of everything, and what does not fit: each body is applied to ones of the types that reach it."""

    def __init__(self, instances: list[Instance]) -> None:
        self.findings = Findings()
        self.types: dict[Any, Val] = {}  # by Output and Carry
        self._broken: set[Instance] = set()
        for top in instances:
            for one in top.all_instances():
                self._validate(one)
        for one in instances:
            if isinstance(one.node, Memory):
                self.types[Output(one, "value")] = Val(np.ones_like(one.node.initial))
        self._check(instances)
        wrong = frozenset(self._broken)
        for one in instances:
            if isinstance(one.node, Memory):
                self._check_memory(one, wrong)

    def _report(self, one: Instance, pin: str | None) -> None:
        self.findings.required.add((one.path, one.node, pin))
        self._broken.add(one)

    def _validate(self, one: Instance) -> None:
        for pin, ref in one.feeds.items():
            if ref is None or ref is DANGLING:
                self._report(one, pin)
        outputs = [set(body.outputs) for body in one.bodies]
        lost = any(ref is DANGLING for body in one.bodies for ref in body.outputs.values())
        if lost or any(own != outputs[0] for own in outputs):
            self._report(one, ANY)
        if isinstance(one.node, Memory) and one.inside:
            self._report(one, None)

    def _check(self, instances: list[Instance]) -> bool:
        order, cycle = order_of(instances)
        for one in cycle:
            self._report(one, ANY)
        fine = not cycle
        for one in order:
            fine &= one not in self._broken if isinstance(one.node, Memory) else self._check_one(one)
        return fine and len(order) == len(instances)

    def _check_one(self, one: Instance) -> bool:
        inner = {i for i in one.all_instances() if i is not one}
        outside = {ref.instance for ref in one.refs() if isinstance(ref, Output)} - inner
        if one in self._broken or not outside.isdisjoint(self._broken):
            self._broken.add(one)
            self.findings.allowed |= {(i.path, i.node) for i in inner}
            return False
        if isinstance(one.node, Choice):
            fine = self._check_region(one, one.node)
        else:
            fine = self._check_leaf(one)
        if not fine:
            self._broken.add(one)
        return fine

    def type_of(self, ref: Any) -> Val:
        if isinstance(ref, Root):
            value = ref.source.array if isinstance(ref.source, Bound) else ref.source.value
            known = of_python(value)
            return Val(np.ones_like(known.array), known.weak)
        return self.types[ref]

    def _check_leaf(self, one: Instance) -> bool:
        assert one.body is not None
        try:
            made = one.body.apply({pin: self.type_of(ref) for pin, ref in one.feeds.items()}, 1.0)
        except Misfit:
            self._report(one, ANY)
            return False
        self.types |= {Output(one, pin): Val(np.ones_like(value.array)) for pin, value in made.items()}
        return True

    def _check_region(self, one: Instance, region: Choice) -> bool:
        for name in region.carried:
            self.types[Carry(id(one), name)] = self.type_of(one.feeds[name]).strong()
        self.types[Carry(id(one), "index")] = Val(np.int64(1))
        fine = self._check_bodies(one)
        while fine and self._adopt_types(one, region):
            fine = self._check_bodies(one)
        if not fine:
            self.findings.allowed.add((one.path, region))
            return False
        seen: dict[str, Any] = {}
        for body in one.bodies:
            if len(set(body.outputs.values())) < len(body.outputs):
                fine = False  # one output twice
            for ref in body.outputs.values():
                if ref.instance not in body.instances:
                    fine = False  # not computed in the region
            if not fine:
                break
            for name, ref in body.outputs.items():
                if seen.setdefault(name, self.types[ref].type) != self.types[ref].type:
                    fine = False
                self.types[Output(one, name)] = self.types[ref]
        if region.kind == "while" and fine and seen["condition"][1] != ():
            fine = False  # one number decides
        if not fine:
            self._report(one, ANY)
            return False
        return self._check_pins(one, region, seen)

    def _check_bodies(self, one: Instance) -> bool:
        checked = [self._check(body.instances) for body in one.bodies]  # all of them: each has problems of its own
        return all(checked)

    def _adopt_types(self, one: Instance, region: Choice) -> bool:
        """A variable of a loop that begins as a Python float is float64 if it becomes that."""
        changed = False
        for entering, leaving in region.carried.items():
            first, later = self.types[Carry(id(one), entering)].array, self.types[one.bodies[0].outputs[leaving]].array
            rises = (first.dtype.name, later.dtype.name) == ("float32", "float64")
            if self.type_of(one.feeds[entering]).weak and later.shape == () and rises:
                self.types[Carry(id(one), entering)] = Val(later)
                changed = True
        return changed

    def _check_pins(self, one: Instance, region: Choice, seen: Mapping[str, Any]) -> bool:
        fine = True
        control = self.type_of(one.feeds[region.control]).strong()
        whole = region.kind not in ("for", "switch") or control.array.dtype.kind != "f"
        if control.array.shape != () or not whole:
            self._report(one, region.control)
            fine = False
        for entering, leaving in region.carried.items():
            if self.types[Carry(id(one), entering)].type != seen[leaving]:
                self._report(one, entering)
                fine = False
        return fine

    def _check_memory(self, one: Instance, wrong: frozenset[Instance]) -> None:
        """Its next value has its type; what comes from a block that is wrong has none."""
        ref = one.feeds["next"]
        assert isinstance(one.node, Memory)
        known = isinstance(ref, Output) and ref.instance not in wrong and ref in self.types
        if isinstance(ref, Root) or (known and self.types[ref].type != Val(one.node.initial).type):
            self._report(one, "next")
