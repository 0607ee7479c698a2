"""Ops without operands: constants, function parameters and keyed inputs."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from livegrad.diagnostics import TypeRuleError, caller_origin
from livegrad.ir.node import Key, Node, make_node
from livegrad.ir.op import Op, exact_value
from livegrad.ir.symbolic_size import SymbolicSize
from livegrad.ir.types import Scalar, Type

_PYTHON_TYPES = {"bool": bool, "signed": int, "unsigned": int, "float": float, "complex": complex}


def _constant_type(*, value: Any, type: Type) -> Type:
    if not isinstance(type, Scalar):
        raise TypeRuleError("a constant is a scalar", found=str(type), help="use splat or broadcast")
    if value.__class__ is not _PYTHON_TYPES[type.kind] and builtins.type(value) is not SymbolicSize:
        raise TypeRuleError("the value of a constant must match its type", expected=type.kind, found=repr(value))
    return type


def _parameter_type(*, index: int, type: Type) -> Type:
    if index.__class__ is not int or index < 0 or not isinstance(type, Type):
        raise TypeRuleError("a parameter needs a position and a type", found=f"{index!r}, {type!r}")
    return type


def _input_type(*, key: Key, type: Type) -> Type:
    if not isinstance(key, Key) or not isinstance(type, Type):
        raise TypeRuleError("an input needs a key and a type", found=f"{key!r}, {type!r}")
    return type


def _evaluate_constant(*, value: Any, type: Scalar) -> Any:
    return type(value)


def _zero_tangent(node: Node) -> None:
    return None


constant_op = Op(
    "constant", type_of=_constant_type, evaluate=_evaluate_constant, jvp=_zero_tangent, cost=0.0, elementwise=True
)
parameter_op = Op("parameter", type_of=_parameter_type, cost=0.0)
input_op = Op("input", type_of=_input_type, jvp=_zero_tangent, cost=0.0)


def constant(value: Any, type: Scalar) -> Node:
    """A scalar constant.

    >>> from livegrad.ir.types import f32
    >>> constant(0.5, f32).type
    f32
    """
    if not isinstance(type, Scalar):
        raise TypeRuleError(
            "a constant is a scalar",
            where=caller_origin(),
            found=str(type),
            help="use splat or broadcast",
        )
    return make_node(constant_op, (), (("type", type), ("value", exact_value(value, type))))


def parameter(index: int, type: Type) -> Node:
    """A function parameter, identified by its position and type."""
    return make_node(parameter_op, (), (("index", index), ("type", type)))


def input_node(key: Key, type: Type) -> Node:
    """A leaf whose value the caller supplies under `key`."""
    return make_node(input_op, (), (("key", key), ("type", type)))


def is_constant(node: Node, value: Any = None) -> bool:
    """Whether a node is a constant, or the constant `value`; 0.0 and -0.0 are different values."""
    if node.op is not constant_op:
        return False
    if value is None:
        return True
    actual = node.attribute("value")
    return bool(actual == value) and np.signbit(complex(actual).real) == np.signbit(complex(value).real)
