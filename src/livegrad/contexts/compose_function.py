"""Composes a program of livegrad functions into one function of its features, and differentiates it.

`Program.to_function` and `Program.gradient` call `compose`. Scoped inputs of modifiers are inlined with their features
replaced, so derivatives propagate through changes of the context.
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
    """A function whose parameters are `features`, in that order, followed by the arrays in `data`."""

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
        missing = [str(needed) for needed in self.features if str(needed) not in context]
        if missing:
            raise ContextError(f"the context has no `{missing[0]}`, which `{self.name}` needs")
        if feature not in self.features:
            return 0.0  # the output does not depend on it
        values = [context[str(needed)] for needed in self.features]
        one = 1.0 if result is element else np.ones((), element.dtype)
        gradients = compile_function(self._backward)(*values, *self.data, one)
        return gradients if len(self.function.parameters) == 1 else gradients[self.features.index(feature)]


def _has_rank_zero(type: Type) -> bool:
    return isinstance(type, Tensor) and type.rank == 0


class _Untyped:
    """A root feature or a plain value, whose type is that of the parameter to which it is passed.

    Numbers become constants; features and arrays become parameters.
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


_Symbol = Node | _Untyped


def compose(linked: Linked) -> Composed:
    """Composes the whole program into one function."""
    output = linked.output
    root = tuple(_Untyped(str(feature), feature=feature) for feature in output.need)
    composer = _Composer()
    result = composer.run(output, root)
    if isinstance(result, _Untyped):
        raise ContextError(f"`{output.name}` is a plain value, not a livegrad function")
    features = [symbol for symbol in root if symbol.node is not None]
    data = [symbol for symbol in composer.values if symbol.node is not None]
    inputs = [symbol.node for symbol in features + data if symbol.node is not None]
    function = make_function(output.name, inputs, [result])
    levels = tuple(symbol.feature for symbol in features if symbol.feature is not None)
    return Composed(output.name, function, levels, tuple(symbol.value for symbol in data))


class _Composer:
    """Evaluates units symbolically, once per unit and environment. It is iterative, so depth is unlimited."""

    def __init__(self) -> None:
        self.values: list[_Untyped] = []
        self._results: dict[tuple[Unit, tuple[_Symbol, ...]], _Symbol] = {}

    def run(self, output: Unit, root: tuple[_Symbol, ...]) -> _Symbol:
        results = self._results
        pending = [(output, root)]
        while pending:
            unit, env = pending[-1]
            if (unit, env) in results:
                pending.pop()
                continue
            inputs = self._inputs(unit, env)
            missing = [key for key in inputs if key not in results]
            if missing:
                pending.extend(reversed(missing))
                continue
            results[unit, env] = self._compute(unit, env, [results[key] for key in inputs])
            pending.pop()
        return results[output, root]

    def _inputs(self, unit: Unit, env: tuple[_Symbol, ...]) -> list[tuple[Unit, tuple[_Symbol, ...]]]:
        """The inputs of a unit, with their environments."""
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

    def _compute(self, unit: Unit, env: tuple[_Symbol, ...], inputs: Sequence[_Symbol]) -> _Symbol:
        function = unit.declaration.function
        if isinstance(function, Constant):
            self.values.append(_Untyped(unit.name, function.interned.value))
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
