"""Calls of Python functions inside programs: `host_call` and printing. Backends run them on the host between kernels.

Frontends use `make_host_call` and `make_print`. A callable is a pure function of its operands unless it declares an
effect; then it runs each time the program reaches it, in program order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from livegrad.diagnostics import DifferentiationError, TypeRuleError, UsageError, caller_origin
from livegrad.ir.dimension import Dimension
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function, Key, Node
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Struct, Tuple, Type, array_form, bool_, components
from livegrad.ops.custom import differentials, make_custom_call
from livegrad.ops.rules import tuple_of


class HostFunction(Key):
    """A Python callable in a program. It compares by identity or, if it has a version, by name and version.

    >>> HostFunction(abs) == HostFunction(abs), HostFunction(abs, version=1) == HostFunction(abs, version=1)
    (False, True)
    """

    __slots__ = ("callable", "effect", "version")

    def __init__(
        self,
        callable: Callable[..., Any],
        *,
        name: str | None = None,
        version: int | str | None = None,
        effect: bool = False,
    ) -> None:
        qualified_name = getattr(callable, "__qualname__", repr(callable))
        super().__init__(name if name is not None else f"{getattr(callable, '__module__', '')}.{qualified_name}")
        self.callable, self.version, self.effect = callable, version, effect

    def _identity(self) -> Any:
        return id(self) if self.version is None else (self.name, self.version, self.effect)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, HostFunction) and self._identity() == other._identity())

    def __hash__(self) -> int:
        return hash(self._identity())


def _host_call_type(*types: Type, function: HostFunction, results: tuple[Type, ...], follows: int) -> Type:
    if not isinstance(function, HostFunction):
        raise TypeRuleError("a host call needs a HostFunction", found=repr(function))
    if not results:
        raise TypeRuleError(
            "a host call must return something, such as a token", help="use make_print, or return a bool"
        )
    if not 0 <= follows <= len(types):
        raise TypeRuleError(f"{follows} ordering operands, but only {len(types)} operands")
    return tuple_of(results)


def _evaluate_host_call(*values: Any, function: HostFunction, results: tuple[Type, ...], follows: int) -> Any:
    # Copies, because the callable may keep its arguments while the plan reuses their memory.
    arguments = [_copy_arrays(value) for value in values[: len(values) - follows]]
    try:
        returned = function.callable(*arguments)
    except Exception as error:
        raise UsageError(f"host function `{function.name}` failed: {error.__class__.__name__}: {error}") from error
    values_returned = (returned,) if len(results) == 1 else returned
    if not isinstance(values_returned, tuple | list) or len(values_returned) != len(results):
        raise UsageError(
            f"host function `{function.name}` must return {len(results)} values", found=repr(returned)[:80]
        )
    converted = tuple(
        _convert_result(value, type, function.name) for value, type in zip(values_returned, results, strict=True)
    )
    return converted[0] if len(converted) == 1 else converted


def _copy_arrays(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_copy_arrays, value))
    return np.array(value) if isinstance(value, np.ndarray) and value.shape else value


def _convert_result(value: Any, type: Type, name: str) -> Any:
    """Converts a callable's result to its declared type."""
    if isinstance(type, Struct | Tuple | Array):
        member_types = components(type)
        if not isinstance(value, tuple | list) or len(value) != len(member_types):
            raise _result_error(value, type, name)
        return tuple(_convert_result(part, member, name) for part, member in zip(value, member_types, strict=True))
    array = np.asarray(value)
    form = array_form(type)
    if form is None:
        raise UsageError(f"a host function cannot return a {type}")
    scalar, shape = form
    fits = len(array.shape) == len(shape) and all(
        isinstance(size, Dimension) or size == actual for size, actual in zip(shape, array.shape, strict=True)
    )
    if not fits or not np.can_cast(array.dtype, scalar.dtype, "same_kind"):
        raise _result_error(value, type, name)
    return array.astype(scalar.dtype)[()]


def _result_error(value: Any, type: Type, name: str) -> UsageError:
    array = np.asarray(value) if not isinstance(value, tuple | list) else None
    description = repr(value)[:80] if array is None else f"{array.dtype}{list(array.shape)}"
    return UsageError(
        f"host function `{name}` returned values that do not have the declared types",
        expected=str(type),
        found=description,
    )


def _refuse_to_derive(y: Node, *tangents: object) -> Any:
    raise DifferentiationError(
        f"cannot differentiate host function `{y.attribute('function').name}`",
        where=y.origin,
        help="pass its vjp (for reverse mode) or jvp, or wrap its arguments in `detach(...)`",
    )


# callable(*operands) on the host, with results of the types `results`. The last `follows` operands are not arguments;
# they only have to be computed first. The callable may raise, so dead-code elimination keeps it.
host_call = Op(
    "host_call",
    type_of=_host_call_type,
    evaluate=_evaluate_host_call,
    jvp=_refuse_to_derive,
    checked=True,
    cost=1000.0,
)


def make_host_call(
    function: HostFunction,
    results: Sequence[Type],
    *operands: Node,
    follows: Sequence[Node] = (),
    vjp: HostFunction | None = None,
    jvp: HostFunction | None = None,
) -> Node:
    """Calls a Python callable that returns values of these types (a tuple if there are several).

    `vjp(*arguments, *cotangents)` returns a cotangent for each differentiable argument, `jvp(*arguments, *tangents)` a
    tangent for each differentiable result. A mode without a rule cannot be used.

    >>> from livegrad.ir.types import f64
    >>> make_host_call(HostFunction(abs), [f64], parameter(0, f64))
    <host_call: f64>
    """
    result_types = tuple(results)
    if vjp is None and jvp is None:
        return host_call(*operands, *follows, function=function, results=result_types, follows=len(follows))
    if follows or function.effect:
        raise UsageError("a host function with a derivative cannot have side effects", where=caller_origin())
    types = tuple(node.type for node in operands)
    primal = _wrap_call(function, types, result_types)
    rules: dict[str, Any] = {}
    if jvp is not None:
        rules["forward"] = _wrap_call(jvp, (*types, *differentials(types)), differentials(result_types))
    if vjp is not None:
        rules["backward"] = _wrap_call(vjp, (*types, *differentials(result_types)), differentials(types))
    return make_custom_call(primal, *operands, **rules)


def _wrap_call(function: HostFunction, types: Sequence[Type], results: Sequence[Type]) -> Function:
    """A function that only calls the host function."""
    parameters = tuple(parameter(index, type) for index, type in enumerate(types))
    value = host_call(*parameters, function=function, results=tuple(results), follows=0)
    get = Op.named("get")
    parts = (value,) if len(results) == 1 else tuple(get(value, index=index) for index in range(len(results)))
    return Function(function.name, parameters, parts)


class _Print:
    """Prints values with a template. Returns a token that orders the effects that follow."""

    def __init__(self, template: str) -> None:
        self._template = template

    def __call__(self, *values: Any) -> bool:
        print(self._template.format(*map(_readable, values)))
        return True


def _readable(value: Any) -> Any:
    """Converts NumPy scalars to Python numbers, so that formats like {:.2f} accept them."""
    if isinstance(value, tuple):
        return tuple(map(_readable, value))
    return (
        value.item() if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.shape) else value
    )


def make_print(template: str, *values: Node, follows: Sequence[Node] = ()) -> Node:
    """Prints `template.format(*values)` at run time; returns a token, a bool.

    The token defines the order: pass it to `follows` of the next print, or to `after(value, token)`. A result of the
    program must depend on the last token, because values that nothing needs are not computed.

    >>> from livegrad.ir.types import f64
    >>> make_print("{:.1f}", parameter(0, f64))
    <host_call: bool>
    """
    function = HostFunction(_Print(template), name="print", version=template, effect=True)
    return host_call(*values, *follows, function=function, results=(bool_,), follows=len(follows))
