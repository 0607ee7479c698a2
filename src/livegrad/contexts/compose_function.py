"""Composes a program of livegrad functions into one function of its features, and differentiates it.

`Program.to_function` and `Program.gradient` call `compose`. Scoped inputs of modifiers are inlined with their features
replaced, so derivatives go through changes of the context too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.contexts.content import Constant
from livegrad.contexts.context_values import Context
from livegrad.contexts.errors import ContextError
from livegrad.contexts.function_nodes import Kernel, Modifier
from livegrad.contexts.link import Linked, Unit
from livegrad.ir.function import inline, make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.types import Scalar, Tensor, Type, scalar_of
from livegrad.ops.aggregate import make_tuple
from livegrad.ops.context import FeatureLevel
from livegrad.passes.differentiate.lower import with_derivatives_written
from livegrad.passes.differentiate.reverse import vjp
from livegrad.runtime.cpu import compile_function


@dataclass(frozen=True)
class Composed:
    """The function of the features in `features`, in that order, then of the arrays in `data`."""

    name: str
    function: Function
    features: tuple[FeatureLevel, ...]
    data: tuple[Any, ...] = ()

    @cached_property
    def _backward(self) -> Function:
        return vjp(with_derivatives_written(self.function))

    def gradient(self, feature: FeatureLevel, context: Context) -> Any:
        result = self.function.result_type
        element = scalar_of(result)
        if element is None or element.kind != "float" or (result is not element and not _has_rank_zero(result)):
            raise ContextError(
                f"`{self.name}` has no single derivative with respect to `{feature}`",
                expected="one real number",
                found=str(result),
            )
        missing = [str(each) for each in self.features if str(each) not in context]
        if missing:
            raise ContextError(f"the context has no `{missing[0]}`, which `{self.name}` needs")
        if feature not in self.features:
            return 0.0  # the output does not depend on it
        values = [context[str(each)] for each in self.features]
        one = 1.0 if result is element else np.ones((), element.dtype)
        slopes = compile_function(self._backward)(*values, *self.data, one)
        return slopes if len(self.function.parameters) == 1 else slopes[self.features.index(feature)]


def _has_rank_zero(type: Type) -> bool:
    return isinstance(type, Tensor) and type.rank == 0


class _Open:
    """A value whose type is determined by the function that takes it: a root feature, or a plain value.

    Numbers become constants; features, and values that are arrays, become parameters.
    """

    def __init__(self, name: str, value: Any = None, feature: FeatureLevel | None = None) -> None:
        self.name, self.value, self.feature = name, value, feature
        self.node: Node | None = None

    def as_type(self, type: Type) -> Node:
        if self.feature is None and isinstance(type, Scalar):
            return constant(self.value, type)
        if self.node is None:
            self.node = input_node(Key(self.name), type)
        if self.node.type is not type:
            raise ContextError(
                f"feature `{self.name}` is read with two different types", expected=str(self.node.type), found=str(type)
            )
        return self.node


_Symbol = Node | _Open


def compose(linked: Linked) -> Composed:
    """One function for the whole program."""
    output = linked.output
    root = tuple(_Open(str(feature), feature=feature) for feature in output.need)
    composer = _Composer()
    result = composer.run(output, root)
    if isinstance(result, _Open):
        raise ContextError(f"`{output.name}` is a plain value, not a livegrad function")
    features = [each for each in root if each.node is not None]
    data = [each for each in composer.values if each.node is not None]
    inputs = [each.node for each in features + data if each.node is not None]
    function = make_function(output.name, inputs, [result])
    named = tuple(each.feature for each in features if each.feature is not None)
    return Composed(output.name, function, named, tuple(each.value for each in data))


class _Composer:
    """Evaluates units symbolically, once per unit and environment. Iterative, so depth is unlimited."""

    def __init__(self) -> None:
        self.values: list[_Open] = []
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
            overlay = tuple(self._change_feature(unit, env, name, function) for name in edge.overlay)
            return [(edge.child, edge.combine(env + overlay))]  # type: ignore[arg-type, list-item]
        if not isinstance(function, Kernel | Constant):
            raise ContextError(
                f"node `{unit.name}` is a Python function, which has no derivative",
                where=unit.declaration.origin,
                help="write it as a livegrad function",
            )
        return [(e.child, env if e.project is None else e.project(env)) for e in unit.plain]  # type: ignore[arg-type, misc]

    def _change_feature(self, unit: Unit, env: tuple[_Symbol, ...], name: str, function: Modifier) -> _Symbol:
        change = dict(function.changes)[name]
        position = unit.reads[name]
        if not isinstance(change, Kernel) or position is None:
            raise ContextError(
                f"node `{unit.name}` changes `{name}` with a Python function, which has no derivative",
                where=unit.declaration.origin,
                help="write the change as a livegrad function",
            )
        return _apply(unit, change, env, [env[position]])

    def _value(self, unit: Unit, env: tuple[_Symbol, ...], inputs: Sequence[_Symbol]) -> _Symbol:
        function = unit.declaration.function
        if isinstance(function, Constant):
            self.values.append(_Open(unit.name, function.interned.value))
            return self.values[-1]
        if isinstance(function, Modifier):
            return inputs[0]
        assert isinstance(function, Kernel)
        return _apply(unit, function, env, inputs)


def _apply(unit: Unit, kernel: Kernel, env: tuple[_Symbol, ...], inputs: Sequence[_Symbol]) -> Node:
    features = [env[unit.reads[str(feature)]] for feature in kernel.features]  # type: ignore[index]
    symbols = [*features, *inputs]
    types = kernel.function.parameter_types
    arguments = [s if isinstance(s, Node) else s.as_type(type) for s, type in zip(symbols, types, strict=True)]
    results = inline(kernel.function, arguments)
    return results[0] if len(results) == 1 else make_tuple(*results)
