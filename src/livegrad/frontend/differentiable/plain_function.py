"""`lg.function`: implements compilation, calls and transforms of captured functions.

`function.captured` describes a captured function, and the compiler depends on that description. `PlainFunction` depends
on both, which keeps imports acyclic.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from livegrad.diagnostics import shown
from livegrad.frontend.differentiable.function_transforms import transform
from livegrad.frontend.function.captured import CapturedFunction, Slot, Specialization, python_calls
from livegrad.frontend.function.dispatch import choose_overload
from livegrad.frontend.function.function_compiler import compile_specialization
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.lazy_calls import run
from livegrad.frontend.function.parallel_debugging import instrument_parallel_loops
from livegrad.frontend.function.python_fallback import to_plain_python
from livegrad.state import Owned


class PlainFunction(CapturedFunction):
    """A captured function; calling it runs native code.

    >>> from livegrad.frontend.function.python_source import run_source
    >>> square = PlainFunction(run_source("def square(x):\\n    return x * x")["square"])
    >>> square(3.0), square(3)
    (9.0, 9)
    """

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if python_calls.depth:
            return self.run_as_python(arguments, keywords, inside=True)
        return run(self, arguments, keywords)

    def choose(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> CapturedFunction:
        return choose_overload(self, arguments, keywords)

    def make_plain_version(self) -> FunctionType:
        function = self.python_function
        return instrument_parallel_loops(function, self.source) if python_calls.checked else to_plain_python(function)

    def compile_for(self, slots: tuple[Slot, ...]) -> Specialization:
        return compile_specialization(self, slots)

    def transform(self, target: Any, name: str, lazily: Callable[..., Any], **options: Any) -> Any:
        return transform(target, name, lazily, **options)

    @classmethod
    def capture(cls, function: FunctionType) -> CapturedFunction:
        captured = _captured_functions.current
        plain = captured.get(function)
        if plain is None:
            plain = captured[function] = PlainFunction(function)
        return plain


_captured_functions: Owned[dict[FunctionType, CapturedFunction]] = Owned(dict)


def function(target: Callable[..., Any]) -> CapturedFunction:
    """Captures a function without making it differentiable.

    >>> from livegrad.frontend.function.python_source import run_source
    >>> function(run_source("def twice(x: int): return 2 * x")["twice"])(4)
    8
    """
    if not isinstance(target, FunctionType):
        raise FunctionError("LG109", f"{shown(target)} is not a Python function", help="decorate a def")
    return PlainFunction(target)
