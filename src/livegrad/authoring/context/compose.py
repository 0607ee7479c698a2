"""A program of livegrad functions as one function of its features, and its gradients.

`Program.to_function` and `Program.gradient` call `compose`. Scoped inputs of modifiers are put in place with their
features exchanged, so a derivative goes through changes of the context too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from livegrad.authoring.context.content import Constant
from livegrad.authoring.context.errors import ContextError
from livegrad.authoring.context.kernel import Kernel, Modifier
from livegrad.authoring.context.link import Linked, Unit
from livegrad.authoring.context.values import Context
from livegrad.backends.cpu import compile_function
from livegrad.diagnostics import UsageError
from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Type
from livegrad.ops.aggregate import make_tuple
from livegrad.ops.context import FeatureLevel
from livegrad.passes.differentiate.reverse import vjp


@dataclass(frozen=True)
class Composed:
    """The function of the features in `features`, in that order."""

    name: str
    function: Function
    features: tuple[FeatureLevel, ...]

    @cached_property
    def _backward(self) -> Function:
        return vjp(self.function)

    def gradient(self, feature: FeatureLevel, context: Context) -> Any:
        result = self.function.result_type
        if not isinstance(result, Scalar) or result.kind != "float":
            raise ContextError(
                f"`{self.name}` has no single slope by `{feature}`", expected="one real number", found=str(result)
            )
        missing = [str(each) for each in self.features if str(each) not in context]
        if missing:
            raise ContextError(f"the context has no `{missing[0]}`, which `{self.name}` needs")
        if feature not in self.features:
            return 0.0  # not needed: the output is the same whatever it is
        values = [context[str(each)] for each in self.features]
        slopes = compile_function(self._backward)(*values, 1.0)
        return slopes if len(self.features) == 1 else slopes[self.features.index(feature)]


class _Open:
    """A value whose type is known once a function takes it: a root feature, or a plain value."""

    def __init__(self, unit: Unit | None, feature: FeatureLevel | None, value: Any = None) -> None:
        self._unit, self.feature, self._value = unit, feature, value
        self.node: Node | None = None

    def as_type(self, type: Type, user: Unit) -> Node:
        if self.feature is None:
            if not isinstance(type, Scalar):
                raise ContextError(
                    f"value `{self._unit and self._unit.name}` cannot be part of one function",
                    expected="a number",
                    found=f"a {type} for `{user.name}`",
                    help="pass it in as a feature",
                )
            return constant(self._value, type)
        if self.node is None:
            self.node = input_node(Key(str(self.feature)), type)
        if self.node.type is not type:
            raise ContextError(
                f"feature `{self.feature}` is read as two types", expected=str(self.node.type), found=str(type)
            )
        return self.node


_Symbol = Node | _Open


def compose(linked: Linked) -> Composed:
    """One function for the whole program."""
    output = linked.output
    root = tuple(_Open(None, feature) for feature in output.need)
    result = _Composer().run(output, root)
    if isinstance(result, _Open):
        raise ContextError(f"`{output.name}` is a plain value, not a livegrad function")
    features = [feature for feature in root if feature.node is not None]
    inputs = [feature.node for feature in features]
    try:
        function = make_function(output.name, inputs, [result])  # type: ignore[arg-type]
    except UsageError as error:
        raise ContextError(f"`{output.name}` cannot be one function: {error.what}") from error
    return Composed(output.name, function, tuple(feature.feature for feature in features))  # type: ignore[misc]


class _Composer:
    """Walks units with symbols for features; one visit for each unit and environment. Iterative, for any depth."""

    def __init__(self) -> None:
        self._done: dict[tuple[Unit, tuple[_Symbol, ...]], _Symbol] = {}

    def run(self, output: Unit, root: tuple[_Symbol, ...]) -> _Symbol:
        done = self._done
        pending = [(output, root)]
        while pending:
            unit, env = pending[-1]
            if (unit, env) in done:
                pending.pop()
                continue
            below = self._below(unit, env)
            waiting = [each for each in below if each not in done]
            if waiting:
                pending.extend(reversed(waiting))
                continue
            done[unit, env] = self._value(unit, env, [done[each] for each in below])
            pending.pop()
        return done[output, root]

    def _below(self, unit: Unit, env: tuple[_Symbol, ...]) -> list[tuple[Unit, tuple[_Symbol, ...]]]:
        function = unit.declaration.function
        if isinstance(function, Modifier):
            edge = unit.scoped[0]
            overlay = tuple(self._changed(unit, env, name, function) for name in edge.overlay)
            return [(edge.child, edge.combine(env + overlay))]  # type: ignore[arg-type, list-item]
        if not isinstance(function, Kernel | Constant):
            raise ContextError(
                f"node `{unit.name}` is a Python function, which has no derivative",
                where=unit.declaration.origin,
                help="write it as a livegrad function",
            )
        return [(e.child, env if e.project is None else e.project(env)) for e in unit.plain]  # type: ignore[arg-type, misc]

    def _changed(self, unit: Unit, env: tuple[_Symbol, ...], name: str, function: Modifier) -> _Symbol:
        change = dict(function.changes)[name]
        place = unit.reads[name]
        if not isinstance(change, Kernel) or place is None:
            raise ContextError(
                f"node `{unit.name}` changes `{name}` by a Python function, which has no derivative",
                where=unit.declaration.origin,
                help="write the change as a livegrad function",
            )
        return _apply(unit, change, env, [env[place]])

    def _value(self, unit: Unit, env: tuple[_Symbol, ...], inputs: Sequence[_Symbol]) -> _Symbol:
        function = unit.declaration.function
        if isinstance(function, Constant):
            return _Open(unit, None, function.fact.value)
        if isinstance(function, Modifier):
            return inputs[0]
        assert isinstance(function, Kernel)
        return _apply(unit, function, env, inputs)


def _apply(unit: Unit, kernel: Kernel, env: tuple[_Symbol, ...], inputs: Sequence[_Symbol]) -> Node:
    features = [env[unit.reads[str(feature)]] for feature in kernel.features]  # type: ignore[index]
    symbols = [*features, *inputs]
    types = kernel.function.parameter_types
    arguments = [s if isinstance(s, Node) else s.as_type(type, unit) for s, type in zip(symbols, types, strict=True)]
    results = inline(kernel.function, arguments)
    return results[0] if len(results) == 1 else make_tuple(*results)
