"""A conformance case: a closed function, seeded arguments, and the tolerance of its results."""

import functools
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from livegrad.diagnostics import LivegradError
from livegrad.ir.function import trace
from livegrad.ir.leaves import parameter
from livegrad.ir.node import Function
from livegrad.ir.op import Op
from livegrad.ir.types import Array, Matrix, Scalar, Struct, Tensor, Tuple, Type, Vector, inner_types
from tests.conformance.tolerance import EXACT, Tolerance
from tests.conformance.values import Draw, values_of


@dataclass(frozen=True)
class Case:
    """One op in one function.

    `smooth` says that the function is differentiable near all arguments that are drawn, so that derivatives can be
    compared with differences.
    """

    name: str
    op: Op
    function: Function
    draw: Callable[[np.random.Generator], tuple[Any, ...]]
    tolerance: Tolerance = EXACT
    smooth: bool = True

    def arguments(self) -> tuple[Any, ...]:
        return self.draw(self.generator())

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(self.name.encode()))

    def __str__(self) -> str:
        return self.name


def short(type: Type) -> str:
    """A type as it appears in the names of cases."""
    match type:
        case Scalar(name=name):
            return name
        case Vector(element=element, size=size):
            return f"{element}x{size}"
        case Matrix(element=element, rows=rows, columns=columns):
            return f"{element}x{rows}x{columns}"
        case Tensor(element=element, shape=shape):
            return f"{element}[{','.join(map(str, shape))}]"
        case Struct(name=name):
            return name
        case Tuple(elements=elements):
            return f"({','.join(map(short, elements))})"
        case Array(element=element, size=size):
            return f"{short(element)}*{size}"
    return str(type)


def make_case(
    op: Op,
    callable: Callable[..., Any],
    *types: Type,
    note: str = "",
    draws: Sequence[Draw] = (),
    tolerance: Tolerance = EXACT,
    smooth: bool = True,
) -> Case:
    """The case of a traced callable on random arguments of these types."""
    label = "/".join(part for part in (op.name, "_".join(map(short, types)), note) if part)
    function = trace(callable, *types, name=op.name)
    return Case(label, op, function, lambda rng: values_of(types, rng, draws), tolerance, smooth)


@functools.cache
def accepts(op: Op, *types: Type, **attributes: Any) -> bool:
    """Whether the op's type rule takes operands of these types."""
    try:
        op(*[parameter(index, type) for index, type in enumerate(types)], **attributes)
    except LivegradError:
        return False
    return True


def scalar_name(case: Case) -> str:
    types = (*case.function.parameter_types, *case.function.result_types)
    scalars = [inner for type in types for inner in inner_types(type) if isinstance(inner, Scalar)]
    inexact = [scalar for scalar in scalars if scalar.kind in ("float", "complex")]
    return str((inexact or scalars)[0])


def grouped(cases: Iterable[Case], quick: Collection[str] = ()) -> Any:
    """Cases by op and scalar type, as parameters of a test; those named in `quick` run code that is quickly made."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(f"{case.op.name}-{scalar_name(case)}", []).append(case)
    marks = {name: [pytest.mark.code("baseline")] if name in quick else [] for name in groups}
    return pytest.mark.parametrize(
        "cases", [pytest.param(group, id=name, marks=marks[name]) for name, group in groups.items()]
    )
