"""Functions on tensors whose derivative the user gives, in either mode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from livegrad.authoring.tensor.handle import node_of, wrap
from livegrad.authoring.tensor.tracing import name_of, placeholders, result_node
from livegrad.authoring.tensor.trees import Structure, flatten, unflatten
from livegrad.diagnostics import UsageError, caller_origin
from livegrad.ir.function import captured_values, make_function
from livegrad.ir.node import Node
from livegrad.ir.types import differential_of, is_differentiable
from livegrad.ops.aggregate import get
from livegrad.ops.custom import make_custom_call
from livegrad.ops.rules import zero

# A rule may call its own function, which carries the rule again: up to this order of derivative, then plainly.
_MOST_NESTED = 3


class _Depth(threading.local):
    """How many rules of one function are being traced inside each other, on this thread."""

    inside = 0


class _Custom:
    """What both kinds share: arguments as nodes, and the call that carries the rule."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._depth = _Depth()
        self._name = name_of(function)
        update_wrapper(self, function, updated=())  # its name, not its attributes: those of a `jit` would replace ours

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    def _arguments(self, args: tuple[Any, ...]) -> tuple[list[Node], Structure]:
        leaves, structure = flatten(args)
        return [node_of(leaf, self._name) for leaf in leaves], structure

    def _nodes(self, tree: Any, like: Structure | None = None) -> list[Node]:
        leaves, structure = flatten(tree)
        if like is not None and structure != like:
            raise UsageError(
                f"the rule of `{self._name}` returns another nesting than it should", where=caller_origin()
            )
        return [result_node(leaf, self._name) for leaf in leaves]

    @staticmethod
    def _results(result: Node, count: int, structure: Structure) -> Any:
        nodes = [result] if count == 1 else [get(result, index=index) for index in range(count)]
        return unflatten(structure, map(wrap, nodes))

    def __call__(self, *args: Any) -> Any:
        if self._depth.inside >= _MOST_NESTED:
            return self._function(*args)
        self._depth.inside += 1
        try:
            return self._call(args)
        finally:
            self._depth.inside -= 1

    def _call(self, args: tuple[Any, ...]) -> Any:
        raise NotImplementedError

    def _missing(self, method: str) -> UsageError:
        return UsageError(f"`{self._name}` has no rule yet", where=caller_origin(), help=f"give it one with {method}")


def _tensors(structure: Structure, nodes: Sequence[Node]) -> Any:
    return unflatten(structure, map(wrap, nodes))


class custom_vjp(_Custom):
    """A function whose reverse mode is given by two: forward(*args) → (result, saved), and backward(saved, cotangents).

    `backward` gives one cotangent for each argument, None for those without one. Forward mode is derived from it.

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
        """Gives the rule."""
        self._rule = forward, backward

    def _call(self, args: tuple[Any, ...]) -> Any:
        if self._rule is None:
            raise self._missing("defvjp")
        forward, backward = self._rule
        nodes, structure = self._arguments(args)
        inputs = placeholders([node.type for node in nodes])
        returned = self._function(*_tensors(structure, inputs))
        results = self._nodes(returned)
        result_structure = flatten(returned)[1]
        saved_pair = forward(*_tensors(structure, inputs))
        if not isinstance(saved_pair, tuple) or len(saved_pair) != 2:
            raise UsageError(f"the forward rule of `{self._name}` returns (result, saved)", where=caller_origin())
        saved_leaves, saved_structure = flatten(saved_pair[1])
        saved = [result_node(leaf, self._name) for leaf in saved_leaves]
        back_saved, back_cotangents, back_results = self._trace_backward(
            backward, saved, saved_structure, results, result_structure, nodes, structure
        )
        # What the backward rule takes from around it is saved as well: a rule is a closed function.
        extra = captured_values([*back_saved, *back_cotangents], back_results)
        captures = captured_values(inputs, [*results, *saved, *extra])
        parameters = [*inputs, *captures]
        zeros = [zero(differential_of(node.type)) for node in captures if is_differentiable(node.type)]
        call = make_custom_call(
            make_function(self._name, parameters, results),
            *nodes,
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
        saved: Sequence[Node],
        saved_structure: Structure,
        results: Sequence[Node],
        result_structure: Structure,
        nodes: Sequence[Node],
        structure: Structure,
    ) -> tuple[tuple[Node, ...], tuple[Node, ...], list[Node]]:
        """The rule's inputs (saved values, cotangents of differentiable results), and what it gives for arguments."""
        back_saved = placeholders([node.type for node in saved])
        differentiable = [node for node in results if is_differentiable(node.type)]
        back_cotangents = placeholders([differential_of(node.type) for node in differentiable])
        supply = iter(back_cotangents)
        given = [wrap(next(supply)) if is_differentiable(node.type) else None for node in results]
        found = backward(_tensors(saved_structure, back_saved), unflatten(result_structure, given))
        if not isinstance(found, tuple) or len(found) != len(structure or ()) - 2:
            raise UsageError(
                f"the backward rule of `{self._name}` returns a tuple with a cotangent for each argument",
                where=caller_origin(),
            )
        children = list((structure or ())[2:])
        cotangents: list[Node | None] = []
        for part, child in zip(found, children, strict=True):
            if part is None:
                cotangents += [None] * _leaf_count(child)
            else:
                cotangents += self._nodes(part, child)
        results_of_rule = [
            zero(differential_of(node.type)) if cotangent is None else cotangent
            for node, cotangent in zip(nodes, cotangents, strict=True)
            if is_differentiable(node.type)
        ]
        return back_saved, back_cotangents, results_of_rule


class custom_jvp(_Custom):
    """A function whose forward mode is given: `rule(primals, tangents)` → (result, its tangent).

    The tangent must be linear in the tangents: reverse mode is derived from it.

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
        """Gives the rule."""
        self._rule = rule

    def _call(self, args: tuple[Any, ...]) -> Any:
        if self._rule is None:
            raise self._missing("defjvp")
        nodes, structure = self._arguments(args)
        inputs = placeholders([node.type for node in nodes])
        returned = self._function(*_tensors(structure, inputs))
        results, result_structure = self._nodes(returned), flatten(returned)[1]
        tangents = placeholders([differential_of(node.type) for node in nodes if is_differentiable(node.type)])
        supply = iter(tangents)
        directions = [wrap(next(supply)) if is_differentiable(node.type) else None for node in nodes]
        found = self._rule(_tensors(structure, inputs), unflatten(structure, directions))
        if not isinstance(found, tuple) or len(found) != 2:
            raise UsageError(f"the rule of `{self._name}` returns (result, tangent)", where=caller_origin())
        moved = [
            node
            for node, result in zip(self._nodes(found[1], result_structure), results, strict=True)
            if is_differentiable(result.type)
        ]
        captures = captured_values([*inputs, *tangents], [*results, *moved])
        silent = placeholders([differential_of(node.type) for node in captures if is_differentiable(node.type)])
        call = make_custom_call(
            make_function(self._name, [*inputs, *captures], results),
            *nodes,
            *captures,
            forward=make_function(f"{self._name}.forward", [*inputs, *captures, *tangents, *silent], moved),
            captures=len(captures),
        )
        return self._results(call, len(results), result_structure)


def _leaf_count(structure: Structure) -> int:
    if structure is None:
        return 1
    return sum(_leaf_count(child) for child in structure[2:])
