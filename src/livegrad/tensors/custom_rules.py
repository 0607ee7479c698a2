"""`custom_vjp` and `custom_jvp`: tensor functions with user-defined derivative rules."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import captured_values, make_function
from livegrad.ir.node import Node
from livegrad.ir.types import differential_of, is_differentiable
from livegrad.ops.aggregate import get
from livegrad.ops.custom import make_custom_call
from livegrad.ops.rules import zero
from livegrad.pickling import Reduced, reduce_function
from livegrad.tensors.declared import convert_declared_numbers
from livegrad.tensors.handle import Tensor, wrap
from livegrad.tensors.pytrees import Structure, flatten, unflatten
from livegrad.tensors.tracing import (
    Arguments,
    convert_like,
    flatten_arguments,
    name_of,
    placeholders,
    require_callable,
    result_node,
)

# A rule may call its own function. Calls nested up to this depth carry the rule, deeper calls do not.
_MAX_NESTING = 3


class _Depth(threading.local):
    """The nesting depth of rules of one function that are being traced on this thread."""

    inside = 0


class _Custom:
    """The common base: converts arguments to nodes and builds the call that carries the rule."""

    def __init__(self, function: Callable[..., Any]) -> None:
        require_callable(function, type(self).__name__)
        self._function = function
        self._depth = _Depth()
        self._name = name_of(function)
        update_wrapper(self, function, updated=())  # not the `__dict__`: attributes of a `Jitted` would replace ours

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    def __reduce__(self) -> Reduced:
        state = {name: value for name, value in vars(self).items() if name != "_depth"}
        return reduce_function(self, type(self), (self._function,), state)

    def _nodes(self, tree: Any) -> list[Node]:
        return [result_node(leaf, self._name) for leaf in flatten(tree)[0]]

    def _leaves(self, tree: Any, like: Structure) -> list[Any]:
        """Flattens a rule's result; raises if its tree structure differs from `like`."""
        leaves, structure = flatten(tree)
        if structure != like:
            what = f"the rule of `{self._name}` returns the wrong tree structure"
            raise UsageError(what, where=caller_origin())
        return leaves

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Binds all arguments by position, because rules take positional arguments only."""
        if not kwargs:
            return args
        try:
            bound = inspect.signature(self._function).bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"`{self._name}` cannot be called with these arguments", where=caller_origin(), help=str(error)
            ) from None
        bound.apply_defaults()
        if bound.kwargs:
            raise UsageError(
                f"rules of `{self._name}` take arguments by position",
                where=caller_origin(),
                found=f"keywords {', '.join(bound.kwargs)}",
            )
        return bound.args

    @staticmethod
    def _results(result: Node, count: int, structure: Structure) -> Any:
        nodes = [result] if count == 1 else [get(result, index=index) for index in range(count)]
        return unflatten(structure, map(wrap, nodes))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._depth.inside >= _MAX_NESTING:
            return self._function(*args, **kwargs)
        self._depth.inside += 1
        try:
            return self._call(self._positional(args, kwargs))
        finally:
            self._depth.inside -= 1

    def _call(self, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def _missing(self, method: str) -> UsageError:
        return UsageError(
            f"`{self._name}` has no derivative rule", where=caller_origin(), help=f"define it with {method}"
        )


class custom_vjp(_Custom):
    """Defines reverse mode by two functions: forward(*args) → (result, saved), and backward(saved, cotangents).

    `backward` returns one cotangent per argument, or None. Forward mode is derived from it. Python numbers, strings and
    booleans among the arguments are passed to both functions unchanged, and have no cotangent.

    >>> import livegrad as lg
    >>> @lg.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda saved, ct: (lg.clip(ct, -1.0, 1.0),))
    >>> lg.grad(lambda x: 5.0 * clipped(x))(lg.asarray(2.0))
    Tensor(1., dtype=float32)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._rule: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Sets the rule."""
        self._rule = forward, backward

    def _call(self, args: tuple[Any, ...]) -> Any:
        if self._rule is None:
            raise self._missing("defvjp")
        forward, backward = self._rule
        arguments = flatten_arguments(convert_declared_numbers(self._function, args, {})[0], self._name)
        inputs = placeholders([node.type for node in arguments.nodes])
        returned = self._function(*arguments.filled(map(wrap, inputs)))
        results = self._nodes(returned)
        result_structure = flatten(returned)[1]
        saved_pair = forward(*arguments.filled(map(wrap, inputs)))
        if not isinstance(saved_pair, tuple) or len(saved_pair) != 2:
            raise UsageError(f"the forward rule of `{self._name}` must return (result, saved)", where=caller_origin())
        saved_arguments = flatten_arguments(saved_pair[1], self._name)
        saved = saved_arguments.nodes
        back_saved, back_cotangents, back_results = self._trace_backward(
            backward, saved_arguments, results, result_structure, arguments
        )
        # Values that the backward rule captures are saved too, because a rule is a closed function.
        extra = captured_values([*back_saved, *back_cotangents], back_results)
        captures = captured_values(inputs, [*results, *saved, *extra])
        parameters = [*inputs, *captures]
        zeros = [zero(differential_of(node.type)) for node in captures if is_differentiable(node.type)]
        call = make_custom_call(
            make_function(self._name, parameters, results),
            *arguments.nodes,
            *captures,
            save=make_function(f"{self._name}.save", parameters, [*saved, *extra]),
            backward=make_function(
                f"{self._name}.backward", [*back_saved, *extra, *back_cotangents], [*back_results, *zeros]
            ),
            captures=len(captures),
        )
        return self._results(call, len(results), result_structure)

    def _trace_backward(
        self,
        backward: Callable[..., Any],
        saved_arguments: Arguments,
        results: Sequence[Node],
        result_structure: Structure,
        arguments: Arguments,
    ) -> tuple[tuple[Node, ...], tuple[Node, ...], list[Node]]:
        """Traces the backward rule.

        Returns its inputs (saved values, and cotangents of differentiable results) and the cotangents that it returns.
        """
        back_saved = placeholders([node.type for node in saved_arguments.nodes])
        differentiable = [node for node in results if is_differentiable(node.type)]
        back_cotangents = placeholders([differential_of(node.type) for node in differentiable])
        remaining = iter(back_cotangents)
        cotangents = [wrap(next(remaining)) if is_differentiable(node.type) else None for node in results]
        returned = backward(saved_arguments.filled(map(wrap, back_saved)), unflatten(result_structure, cotangents))
        children = (arguments.structure or ())[2:]
        if not isinstance(returned, tuple) or len(returned) != len(children):
            raise UsageError(
                f"the backward rule of `{self._name}` must return a tuple with a cotangent for each argument",
                where=caller_origin(),
            )
        parts: list[Any] = []  # one for each leaf of the arguments
        for part, child in zip(returned, children, strict=True):
            parts += [None] * _leaf_count(child) if part is None else self._leaves(part, child)
        leaf_cotangents = [part for part, stays in zip(parts, arguments.is_static, strict=True) if not stays]
        results_of_rule = [
            zero(differential_of(node.type))
            if part is None
            else convert_like(part, differential_of(node.type), self._name)
            for node, part in zip(arguments.nodes, leaf_cotangents, strict=True)
            if is_differentiable(node.type)
        ]
        return back_saved, back_cotangents, results_of_rule


class custom_jvp(_Custom):
    """Defines forward mode by a rule: `rule(primals, tangents)` → (result, tangent of the result).

    The result's tangent must be linear in `tangents`, because reverse mode is its transpose.

    >>> import livegrad as lg
    >>> @lg.custom_jvp
    ... def double(x):
    ...     return x + x
    >>> double.defjvp(lambda primals, tangents: (double(*primals), 10.0 * tangents[0]))
    >>> lg.grad(double)(lg.asarray(1.0))
    Tensor(10., dtype=float32)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._rule: Callable[..., Any] | None = None

    def defjvp(self, rule: Callable[..., Any]) -> None:
        """Sets the rule."""
        self._rule = rule

    def _call(self, args: tuple[Any, ...]) -> Any:
        if self._rule is None:
            raise self._missing("defjvp")
        arguments = flatten_arguments(convert_declared_numbers(self._function, args, {})[0], self._name)
        inputs = placeholders([node.type for node in arguments.nodes])
        returned = self._function(*arguments.filled(map(wrap, inputs)))
        results, result_structure = self._nodes(returned), flatten(returned)[1]
        tangents = placeholders(
            [differential_of(node.type) for node in arguments.nodes if is_differentiable(node.type)]
        )
        rule_result = self._rule(
            arguments.filled(map(wrap, inputs)), unflatten(arguments.structure, _directions(arguments, tangents))
        )
        if not isinstance(rule_result, tuple) or len(rule_result) != 2:
            raise UsageError(f"the rule of `{self._name}` must return (result, tangent)", where=caller_origin())
        result_tangents = [
            convert_like(leaf, differential_of(result.type), self._name)
            for leaf, result in zip(self._leaves(rule_result[1], result_structure), results, strict=True)
            if is_differentiable(result.type)
        ]
        captures = captured_values([*inputs, *tangents], [*results, *result_tangents])
        capture_tangents = placeholders(
            [differential_of(node.type) for node in captures if is_differentiable(node.type)]
        )
        call = make_custom_call(
            make_function(self._name, [*inputs, *captures], results),
            *arguments.nodes,
            *captures,
            forward=make_function(
                f"{self._name}.forward", [*inputs, *captures, *tangents, *capture_tangents], result_tangents
            ),
            captures=len(captures),
        )
        return self._results(call, len(results), result_structure)


def _directions(arguments: Arguments, tangents: Sequence[Node]) -> list[Any]:
    """Returns a tangent for each leaf of the arguments: None for non-differentiable leaves, zero for Python floats."""
    remaining, nodes = iter(tangents), iter(arguments.nodes)
    directions: list[Any] = []
    for leaf, stays in zip(arguments.leaves, arguments.is_static, strict=True):
        if stays:
            kind = leaf.dtype.kind if isinstance(leaf, Tensor) else leaf.__class__.__name__
            directions.append(0.0 if kind in ("float", "complex") else None)
        else:
            directions.append(wrap(next(remaining)) if is_differentiable(next(nodes).type) else None)
    return directions


def _leaf_count(structure: Structure) -> int:
    if structure is None:
        return 1
    return sum(_leaf_count(child) for child in structure[2:])
