"""Pairs of a primal and its differential, which forward derivatives take and return.

Captured functions treat a pair as an ordinary struct.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from livegrad.diagnostics import CallError, caller_origin
from livegrad.frontend.differentiable.differential_values import require_differential_value
from livegrad.frontend.differentiable.differentials import TaggedType
from livegrad.frontend.differentiable.protocol import require_differential
from livegrad.frontend.function.call_cache import KINDS, kind_of
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import Value, convert, convertible, node_of
from livegrad.frontend.function.execution import is_lifted
from livegrad.frontend.function.function_errors import Span
from livegrad.frontend.function.function_library import named_intrinsic
from livegrad.frontend.function.function_types import (
    Composite,
    Field,
    FrontType,
    Instance,
    RecordType,
    describe,
    differential_type,
)
from livegrad.frontend.function.intrinsics import intrinsic
from livegrad.frontend.function.promotion import promote
from livegrad.frontend.function.signature import OpenAnnotation
from livegrad.frontend.function.type_reading import plain_type, type_of_value
from livegrad.frontend.function.type_rules import TypeRules
from livegrad.ir import types as ir
from livegrad.ops.aggregate import make, member


class PairType(RecordType):
    """The type of pairs; `pair_type` creates one object per primal type."""

    def __init__(self, primal: FrontType) -> None:
        fields = (Field("primal", primal), Field("differential", require_differential(primal)))
        super().__init__(f"Pair[{describe(primal)}]", lambda: fields, self._make)
        self.primal = primal

    def _make(self, primal: Any, differential: Any) -> Pair:
        return Pair(primal, differential, self)


@cache
def pair_type(primal: FrontType) -> PairType:
    """The pair type of a differentiable type."""
    return PairType(primal)


class Pair(Instance):
    """A primal and its differential.

    >>> p = pair(2.0, 1.0)
    >>> p.primal, p.differential
    (2.0, 1.0)
    """

    primal: Any
    differential: Any

    def __init__(self, primal: Any, differential: Any, type: PairType | None = None) -> None:
        super().__init__(
            _pair_type_of(primal) if type is None else type, {"primal": primal, "differential": differential}
        )

    def __class_getitem__(cls, primal: Any) -> PairType | OpenAnnotation:
        if isinstance(primal, TypeVar):
            return OpenAnnotation(f"Pair[{primal.__name__}]")
        try:
            return pair_type(plain_type(primal))
        except TypeError as error:
            what = "`Pair` takes a type in brackets"
            raise CallError(what, where=caller_origin(), expected="for example Pair[float]", help=str(error)) from None

    def __livegrad_abstract__(self, abstract: Any, expected: Any, weak_numbers: bool = False) -> Value:
        """The abstract value of a pair from Python: the pair type of its abstract primal."""
        expected_primal = expected.primal if isinstance(expected, PairType) else expected
        # Only floats have differentials, so an int primal means a float.
        primal = float(self.primal) if self.primal.__class__ is int else self.primal
        inner = abstract(primal, expected_primal, weak_numbers)
        if isinstance(expected_primal, TaggedType) and convertible(inner, expected_primal):
            inner = Value(expected_primal)  # the differential then belongs to the optional or interface, too
        if inner.type is None or differential_type(inner.type) is None:
            return Value(self.__livegrad_type__)
        type = pair_type(inner.type)
        lifted = not isinstance(inner.type, Composite) and is_lifted(inner.type, self.primal)
        require_differential_value(type.fields[1].type, self.differential, "a pair with the wrong differential", lifted)
        return Value(type, weak=inner.weak)

    def __repr__(self) -> str:
        return f"Pair(primal={self.primal!r}, differential={self.differential!r})"


def _pair_type_of(primal: Any) -> PairType:
    return pair_type(type_of_value(primal))


@named_intrinsic("pair")
def pair(primal: Any, differential: Any) -> Pair:
    """Creates a pair of a primal and its differential, to pass to a forward derivative.

    >>> pair(1.5, 1.0)
    Pair(primal=1.5, differential=1.0)
    """
    return _LazyPair(primal, differential)


class _LazyPair(Pair):
    """A pair that was created in Python. Its exact type is determined by the function that receives it, because Python
    numbers match parameters of any width.
    """

    def __init__(self, primal: Any, differential: Any) -> None:
        self.__dict__.update(primal=primal, differential=differential)

    @property
    def __livegrad_type__(self) -> PairType:  # type: ignore[override]
        return _pair_type_of(self.primal)

    def __livegrad_parts__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return pair, ("primal", "differential")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pair):
            return NotImplemented
        return bool(self.primal == other.primal and self.differential == other.differential)

    __hash__ = None  # type: ignore[assignment]


@intrinsic("pair")
def _pair(context: Context, values: Any, at: ast.AST) -> Value:
    if len(values) != 2:
        raise context.error("LG108", "`pair` takes a primal and its differential", at, found=str(len(values)))
    primal, differential = values
    span = context.span(at)
    if primal.type is None or differential_type(primal.type) is None:
        raise context.error("LG306", "only a differentiable value has a differential", at)
    weak = primal.weak and differential.weak
    if primal.weak and isinstance(primal.type, ir.Scalar) and isinstance(differential.type, ir.Scalar):
        primal = replace(primal, type=promote(primal.type, True, differential.type, differential.weak))
    assert primal.type is not None
    type = pair_type(primal.type)
    converted = convert(differential, type.fields[1].type, span, "the differential")
    first = convert(primal, primal.type, span)
    node = make(node_of(first, span), node_of(converted, span), type=type.ir)
    return context.result(type, node, [primal, converted], at, weak)


def _convert_pair(value: Value, target: FrontType, span: Span | None) -> Any:
    """Converts a pair of narrower numbers to a pair of wider numbers."""
    if not isinstance(value.type, PairType) or not isinstance(target, PairType) or value.type is target:
        return None
    if not convertible(Value(value.type.primal, weak=value.weak), target.primal):
        return None
    if span is None or value.node is None:
        return Value(target)
    parts = [
        convert(Value(source.type, member(value.node, index), weak=value.weak), goal.type, span)
        for index, (source, goal) in enumerate(zip(value.type.fields, target.fields, strict=True))
    ]
    return Value(target, make(*[node_of(part, span) for part in parts], type=target.ir), flow=value.flow)


def _annotation(annotation: Any) -> PairType | None:
    return annotation if isinstance(annotation, PairType) else None


RULES = TypeRules(annotation=_annotation, conversion=_convert_pair)


def _pair_kind(value: Pair) -> Any:
    kinds = (kind_of(value.primal), kind_of(value.differential))
    return None if None in kinds else (Pair, *kinds)


KINDS[Pair] = KINDS[_LazyPair] = _pair_kind
