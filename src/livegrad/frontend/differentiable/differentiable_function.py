"""The decorator `differentiable` for functions and structs, and the storage policies of reverse mode."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, TypeVar

from livegrad.diagnostics import UsageError, caller_origin, shown
from livegrad.diagnostics.explain_calls import explain_calls
from livegrad.frontend.differentiable.custom_derivatives import attach_custom_derivatives, store_each_leaf
from livegrad.frontend.differentiable.decorated import is_decorated
from livegrad.frontend.differentiable.flow_check import check_derivative_flow
from livegrad.frontend.differentiable.generics import check_generic, types_of_generic
from livegrad.frontend.differentiable.make_struct import make_struct
from livegrad.frontend.differentiable.plain_function import PlainFunction
from livegrad.frontend.differentiable.struct import StructType
from livegrad.frontend.function.captured import CapturedFunction, Slot, Specialization
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.dispatch import call_span
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.ir.node import Node
from livegrad.passes.differentiate.report import StorageReport, storage_report
from livegrad.tensors.transforms import limit_residuals


class DifferentiableFunction(PlainFunction):
    """A captured function with derivatives. Functions that it calls must be differentiable too, or excluded with
    `no_diff`.

    >>> from livegrad.frontend.function.python_source import run_source
    >>> cube = differentiable(run_source("def cube(x: float): return x * x * x")["cube"])
    >>> cube, cube.python(2.0)
    (<DifferentiableFunction cube>, 8.0)
    """

    differentiable = True
    settings = (
        *PlainFunction.settings, "forward_rule", "backward_rule", "substitute_rule",
        "recompute", "checkpoint", "budget",
    )  # fmt: skip

    def __init__(self, function: FunctionType) -> None:
        super().__init__(function)
        self.forward_rule: CapturedFunction | None = None
        self.backward_rule: CapturedFunction | None = None
        self.substitute_rule: CapturedFunction | None = None
        self.recompute = self.checkpoint = False
        self.budget: int | None = None

    def verify(self, context: Context) -> None:
        # The body of a function with a custom derivative is not differentiated.
        if not (self.forward_rule or self.backward_rule or self.substitute_rule):
            check_derivative_flow(context)

    def specialize(self, slots: tuple[Slot, ...]) -> Specialization:
        specialization = self._specializations.get(slots)
        plain = super().specialize(slots)
        return plain if plain is specialization else attach_custom_derivatives(self, plain)

    def wrap_call_result(self, result: Node) -> Node:
        return store_each_leaf(result) if self.checkpoint else result

    def differentiable_types(self, *types: Any) -> dict[Any, Any]:
        """Returns the differentiable types that the function and its callees use, with their Differentials.

        For a generic function, they include its type variables: `{~T: T.Differential}`.

        >>> from livegrad.frontend.function.python_source import run_source
        >>> f = DifferentiableFunction(run_source("def f(x: float, n: int): return x * n")["f"])
        >>> f.differentiable_types()
        {f64: f64}
        """
        generic = None if types else types_of_generic(self)
        return dict(self.specialization_for(*types).dependencies.types) if generic is None else generic

    def remembered(self, *types: Any) -> StorageReport:
        """Reports what reverse mode stores, with bytes, lines and reasons; print the result to read it.

        >>> from livegrad.frontend.function.python_source import run_source
        >>> f = DifferentiableFunction(run_source("def f(x: float): return x * x")["f"])
        >>> [(value.op, value.kind) for value in f.remembered().values]
        [('argument', 'argument')]
        """
        return storage_report(self.specialization_for(*types).function)

    # --- custom derivatives ---

    def forward_derivative(self, rule: Any) -> CapturedFunction:
        """Registers the forward derivative. It has the signature of `fwd_diff` of this function.

        >>> from livegrad.frontend.differentiable import Pair, fwd_diff, pair
        >>> from livegrad.frontend.function.python_source import run_source
        >>> names = run_source(
        ...     "def f(x: float): return x * x\\n"
        ...     "def df(x: Pair[float]): return pair(x.primal * x.primal, 10.0 * x.differential)",
        ...     {"Pair": Pair, "pair": pair},
        ... )
        >>> f = DifferentiableFunction(names["f"])
        >>> _ = f.forward_derivative(names["df"])
        >>> fwd_diff(f)(pair(3.0, 1.0)).differential
        10.0
        """
        self.forward_rule = self._rule(rule)
        return self.forward_rule

    def backward_derivative(self, rule: Any) -> CapturedFunction:
        """Registers the backward derivative. It has the signature of `bwd_diff` of this function."""
        self.backward_rule = self._rule(rule)
        return self.backward_rule

    def primal_substitute(self, rule: Any) -> CapturedFunction:
        """Registers a function that is differentiated instead of this one."""
        self.substitute_rule = self._rule(rule)
        return self.substitute_rule

    def _rule(self, rule: Any) -> CapturedFunction:
        self.forget_specializations()
        return rule if isinstance(rule, CapturedFunction) else DifferentiableFunction(rule)


def differentiable(target: Any) -> Any:
    """Turns a function into a differentiable function, or a class into a struct with a Differential.

    >>> from livegrad.frontend.function.python_source import run_source
    >>> cube = differentiable(run_source("def cube(x: float): return x * x * x")["cube"])
    >>> cube(2.0)
    8.0
    """
    if isinstance(target, type):
        return target if is_decorated(target, StructType) else make_struct(target, _frame_of_definition())
    if isinstance(target, CapturedFunction):
        target = target.python_function
    if isinstance(target, property) and target.fset is None:
        return property(differentiable(target.fget), doc=target.__doc__)
    if not isinstance(target, FunctionType):
        what = f"{shown(target)} is not a Python function or class"
        raise FunctionError("LG109", what, call_span(), help="decorate a def or a class")
    captured = DifferentiableFunction(target)
    check_generic(captured)
    return captured


def _frame_of_definition() -> FrameType | None:
    """The frame that defines the decorated class; skips the wrapper of public functions."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == explain_calls.__code__.co_filename:
        frame = frame.f_back
    return frame


# --- storage policies of reverse mode --------------------------------------------------------------------------------


def prefer_recompute(function: DifferentiableFunction) -> DifferentiableFunction:
    """Makes reverse mode store only the arguments of a call and recompute the rest in the backward pass.

    >>> from livegrad.frontend.differentiable import bwd_diff
    >>> from livegrad.frontend.function.python_source import run_source
    >>> f = prefer_recompute(differentiable(run_source("def f(x: float): return x * x")["f"]))
    >>> bwd_diff(f)(3.0, 1.0)
    (6.0,)
    """
    _require_differentiable(function, "prefer_recompute")
    function.recompute = True
    return function


def prefer_checkpoint(function: DifferentiableFunction) -> DifferentiableFunction:
    """Makes reverse mode store the result of a call, even where it would otherwise recompute it.

    >>> from livegrad.frontend.differentiable import bwd_diff
    >>> from livegrad.frontend.function.python_source import run_source
    >>> f = prefer_checkpoint(differentiable(run_source("def f(x: float): return x * x")["f"]))
    >>> bwd_diff(f)(3.0, 1.0)
    (6.0,)
    """
    _require_differentiable(function, "prefer_checkpoint")
    function.checkpoint = True
    return function


_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


def remember_at_most(bytes: int) -> Callable[[_FunctionT], _FunctionT]:
    """Limits the bytes that reverse mode stores for a loop: longer loops are split into segments that the backward pass
    recomputes.

    A loop of n iterations then stores about √n times as much as one iteration. Applies to differentiable functions and
    functions of tensors, to loops and to scans of known length.

    >>> from livegrad.frontend.differentiable import bwd_diff
    >>> from livegrad.frontend.function.python_source import run_source
    >>> text = "def f(x: float, n: int):\\n  y = x\\n  for i in range(n):\\n    y = y * x\\n  return y"
    >>> f = remember_at_most(1024)(differentiable(run_source(text)["f"]))
    >>> bwd_diff(f)(2.0, 3, 1.0)
    (32.0, None)
    >>> import livegrad as lg
    >>> power = remember_at_most(256)(lambda x: lg.fori_loop(0, 100, lambda i, y: y * x, x))
    >>> lg.grad(power)(1.0)
    Tensor(101., dtype=float32)
    """
    if bytes < 1:
        raise UsageError("a byte budget must be positive", where=caller_origin(), found=str(bytes))

    def decorate(function: Any) -> Any:
        if callable(function) and not isinstance(function, CapturedFunction):
            return limit_residuals(function, bytes)
        _require_differentiable(function, "remember_at_most")
        assert isinstance(function, DifferentiableFunction)
        function.budget = bytes
        return function

    return decorate


def _require_differentiable(function: Any, name: str) -> None:
    if not isinstance(function, DifferentiableFunction):
        raise FunctionError(
            "LG305",
            f"`{name}` takes a differentiable function",
            call_span(),
            help=f"write @{name} above @differentiable",
        )
    function.forget_specializations()
