"""Derivatives of bound methods: `bwd_diff(spring.energy)` differentiates by the arguments, not by the instance.

`derivative_operators` uses it to convert a method to a function. Inside captured functions, the instance may be a
run-time value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from livegrad.frontend.differentiable.derivative_operators import Derivative
from livegrad.frontend.differentiable.resolution import ArgumentSources, resolve
from livegrad.frontend.differentiable.resolved import Resolved
from livegrad.frontend.function.calls import BoundMethod
from livegrad.frontend.function.captured import BoundFunction, CapturedFunction
from livegrad.frontend.function.compile_values import Value
from livegrad.frontend.function.dispatch import abstract_argument
from livegrad.frontend.function.function_errors import Span
from livegrad.frontend.function.signature import Default
from livegrad.frontend.function.type_rules import TypeRules


class Bound(Derivative):
    """A method bound to its instance, as a function of the method's other arguments."""

    def __init__(self, method: CapturedFunction, instance: Any) -> None:
        super().__init__(method, "bound")
        self.__name__ = method.__name__
        self.instance = instance

    def bound_values(self) -> tuple[Any, ...]:
        return (self.instance,)

    def resolve_call(self, values: Sequence[Value], span: Span) -> tuple[Resolved, ArgumentSources]:
        instance = self.instance if isinstance(self.instance, Value) else abstract_argument(self.instance, None)
        inner, sources = resolve(self.target, [instance, *values], span)
        arguments = [
            replace(argument, no_diff=True, bound=True) if source == 0 else argument
            for argument, source in zip(inner.arguments, sources, strict=True)
        ]
        shifted = [source if isinstance(source, Default) else source - 1 for source in sources]
        bound_sources = [Default(self.instance) if source == -1 else source for source in shifted]
        return replace(inner, arguments=arguments), bound_sources


def _derivative_target(target: Any) -> Derivative | None:
    """Converts a method of an instance, or of a value inside a captured function, to a derivative target."""
    if isinstance(target, BoundFunction):
        return Bound(target.function, target.instance)
    if not isinstance(target, BoundMethod):
        return None
    method = getattr(target.target.type, "methods", {}).get(target.name)
    return Bound(method, target.target) if isinstance(method, CapturedFunction) else None


RULES = TypeRules(derivative_target=_derivative_target)
