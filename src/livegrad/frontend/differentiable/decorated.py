"""Detects classes that are already decorated, so that `differentiable` and `interface` change a class only once."""

from __future__ import annotations

from livegrad.frontend.function.dispatch import call_span
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.function_types import Composite, RecordType


def is_decorated(cls: type, kind: type[Composite]) -> bool:
    """Whether a class already has a type of this kind; raises if it has one of another kind."""
    declared = vars(cls).get("__livegrad_type__")
    if declared is None or isinstance(declared, kind):
        return declared is not None
    raise FunctionError(
        "LG109",
        f"{cls.__name__} is already decorated",
        call_span(),
        found="a struct" if isinstance(declared, RecordType) else "an interface",
        help="decorate a class with either @differentiable or @interface",
    )
