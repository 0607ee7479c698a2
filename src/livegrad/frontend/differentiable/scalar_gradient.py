"""Gradients of captured functions with one float result: `lg.grad` and `lg.value_and_grad`.

In: a captured function. Out: a `Gradient`, a function of the same arguments. Like every derivative, it can be
differentiated again and called in captured functions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from livegrad.diagnostics import shown
from livegrad.frontend.differentiable.derivative_operators import Derivative, as_target, bwd_diff
from livegrad.frontend.differentiable.resolution import ArgumentSources, backward_of, resolve
from livegrad.frontend.differentiable.resolved import Resolved, resolution_key
from livegrad.frontend.function.calls import arguments_of
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, static
from livegrad.frontend.function.dispatch import call_span
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_library import named_intrinsic
from livegrad.frontend.function.function_types import FrontType, TupleType, describe, ir_of
from livegrad.frontend.function.intrinsics import SPECIAL_FORMS
from livegrad.frontend.function.lazy_calls import contains_tensor
from livegrad.frontend.function.signature import Default
from livegrad.ir import types as ir
from livegrad.ir.function import make_function
from livegrad.ir.leaves import constant, input_node
from livegrad.ir.node import Key, Node
from livegrad.ops.aggregate import make, member
from livegrad.ops.control import call
from livegrad.tensors import transforms as of_tensors

Argnums = int | tuple[int, ...]


class Gradient(Derivative):
    """The gradient of a captured function by the arguments at `argnums`, optionally with the value.

    >>> from livegrad.frontend.differentiable import differentiable
    >>> from livegrad.frontend.function.python_source import run_source
    >>> f = differentiable(run_source("def f(x: float): return x * x * x")["f"])
    >>> Gradient(f)(2.0), Gradient(Gradient(f))(2.0), Gradient(f, with_value=True)(2.0)
    (12.0, 12.0, (8.0, 12.0))
    """

    def __init__(
        self,
        target: CapturedFunction | Derivative,
        argnums: Argnums = 0,
        *,
        with_value: bool = False,
        lazily: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(target, "value_and_grad" if with_value else "grad")
        if not all(isinstance(position, int) for position in _as_tuple(argnums)):
            raise FunctionError(
                "LG306",
                "argnums must be positions of arguments",
                call_span(),
                expected="0, or (0, 1)",
                found=shown(argnums),
            )
        self.argnums, self.with_value = argnums, with_value
        self._lazily = lazily  # the transform of tensor code, for lazy tensors among the arguments

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._lazily is not None and any(map(contains_tensor, (*arguments, *keywords.values()))):
            return self._lazily(*arguments, **keywords)
        return super().__call__(*(self._in_order(arguments, keywords) if keywords else arguments))

    def _in_order(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """The arguments by position."""
        base = self.target
        while isinstance(base, Gradient):
            base = base.target
        if not isinstance(base, CapturedFunction):
            raise FunctionError("LG310", f"`{self.__name__}` takes its arguments by position", call_span())
        bound = base.signature.bind(arguments, keywords)
        if isinstance(bound, str):
            raise FunctionError("LG108", f"`{self.__name__}`: {bound}", call_span(), expected=str(base.signature))
        values = [bound[parameter.name] for parameter in base.signature.parameters]
        return [value.value if isinstance(value, Default) else value for value in values]

    def resolve_call(self, values: Sequence[Value], span: Span) -> tuple[Resolved, ArgumentSources]:
        inner, sources = resolve(self.target, values, span)
        chosen = [
            self._argument_index(position, sources, inner, len(values), span) for position in _as_tuple(self.argnums)
        ]
        key = (resolution_key(inner), tuple(chosen))
        gradient = self._resolved.get(key)
        if gradient is None:
            gradient = self._resolved[key] = self._build(inner, chosen, span)
        return gradient.with_dependencies_of(inner), sources

    def _argument_index(self, position: int, sources: ArgumentSources, inner: Resolved, count: int, span: Span) -> int:
        """The index of the run-time argument that an element of `argnums` selects."""
        if not -count <= position < count:
            raise FunctionError("LG306", f"`{inner.name}` has no argument {position}", span, found=f"{count} arguments")
        index = sources.index(position % count) if position % count in sources else None
        if index is None or not inner.arguments[index].active:
            raise FunctionError("LG306", f"argument {position} of `{inner.name}` has no derivative", span)
        return index

    def _build(self, inner: Resolved, chosen: list[int], span: Span) -> Resolved:
        """Builds one function from the arguments to the gradient, or to the value and the gradient, so that both share
        common subexpressions.
        """
        backward = backward_of(bwd_diff(self.target), inner, span)
        inputs = [input_node(Key(argument.name), ir_of(argument.type)) for argument in inner.arguments]
        parts = call(*inputs, _unit_seed(inner.result, inner.name, span), function=backward.function)
        assert isinstance(backward.result, TupleType)
        unbound = [index for index, argument in enumerate(inner.arguments) if not argument.bound]
        positions = [unbound.index(index) for index in chosen]
        nodes: list[Node] = [member(parts, position) for position in positions]
        types: list[FrontType] = [backward.result.elements[position] for position in positions]
        node, result = nodes[0], types[0]
        if not isinstance(self.argnums, int):
            result = TupleType(tuple(types))
            node = make(*nodes, type=result.ir)
        if self.with_value:
            result = TupleType((inner.result, result))
            node = make(call(*inputs, function=inner.function), node, type=result.ir)
        function = make_function(self.__name__, inputs, [node])
        return Resolved(self.__name__, function, inner.arguments, result, False, inner.is_current, inner.types)


def _as_tuple(argnums: Argnums) -> tuple[int, ...]:
    return tuple(argnums) if isinstance(argnums, tuple | list) else (argnums,)


def _unit_seed(type: FrontType, name: str, span: Span) -> Node:
    if not isinstance(type, ir.Scalar) or type.kind != "float":
        raise FunctionError(
            "LG306",
            f"`{name}` must return one float to have a gradient",
            span,
            found=describe(type),
            help="use bwd_diff with a differential of the result",
        )
    return constant(1.0, type)


# --- inside captured functions ---------------------------------------------------------------------------------------


def _gradient_form(name: str) -> Callable[[Context, ast.Call], Value]:
    def handler(context: Context, node: ast.Call) -> Value:
        positional, keywords = arguments_of(context, node)
        arguments = dict(zip(("function", "argnums"), positional, strict=False)) | keywords
        target = as_target(arguments.pop("function", static(None)).static)
        argnums = arguments.pop("argnums", static(0))
        positions = argnums.static if argnums.items is None else tuple(item.static for item in argnums.items)
        if arguments or len(positional) > 2 or not isinstance(positions, int | tuple):
            raise context.error("LG108", f"`{name}` takes a function and the positions of arguments", node)
        if not isinstance(target, CapturedFunction | Derivative):
            raise context.error(
                "LG305", f"`{name}` takes a differentiable function", node, help="decorate it with @differentiable"
            )
        return static(Gradient(target, positions, with_value=name == "value_and_grad"))

    return handler


for _name in ("grad", "value_and_grad"):
    named_intrinsic(_name)(getattr(of_tensors, _name))
    SPECIAL_FORMS[_name] = _gradient_form(_name)
