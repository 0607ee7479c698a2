"""Interfaces in captured functions: dynamic dispatch by a switch over the tag, conversions, `isinstance`, registration.

`interface` is public; the other functions are hooks of the compiler.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeVar

from livegrad.diagnostics import shown
from livegrad.frontend.differentiable.decorated import is_decorated
from livegrad.frontend.differentiable.interface import InterfaceDifferential, InterfaceType
from livegrad.frontend.differentiable.protocol import Differentiable
from livegrad.frontend.differentiable.struct import StructType
from livegrad.frontend.function.aliases import merge_aliases
from livegrad.frontend.function.calls import BoundMethod, call_value
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.frontend.function.compile_state import Context
from livegrad.frontend.function.compile_values import (
    Value,
    aliases_of,
    convert,
    flows_of,
    name_of,
    node_of,
    runtime,
    static,
    with_aliases,
)
from livegrad.frontend.function.function_errors import FunctionError, Span
from livegrad.frontend.function.function_types import FrontType, RecordType, describe, differential_type
from livegrad.frontend.function.intrinsics import intrinsic, require_count
from livegrad.frontend.function.signature import SELF, read_annotation
from livegrad.frontend.function.type_rules import TypeRules
from livegrad.ir.function import make_function
from livegrad.ir.leaves import input_node
from livegrad.ir.node import Key, Node
from livegrad.ir.types import Matrix, Scalar, Vector, bool_
from livegrad.ops.aggregate import member
from livegrad.ops.comparison import bit_or, equal
from livegrad.ops.control import switch

# --- dispatch --------------------------------------------------------------------------------------------------------


def _method(context: Context, value: Value, name: str) -> BoundMethod | None:
    if not isinstance(value.type, InterfaceType) or name not in value.type.methods:
        return None
    return BoundMethod(value, name, _dispatcher(name))


def _dispatcher(name: str) -> Any:
    def run(context: Context, target: Value, positional: list[Value], keywords: dict[str, Value], at: ast.AST) -> Value:
        assert isinstance(target.type, InterfaceType)
        interface = target.type
        structs = interface.require_implementers()
        compiled_structs = list(structs)
        context.dependencies.callees.append(lambda: interface.implementers == compiled_structs)
        return _dispatch(context, interface, structs, name, target, positional, keywords, at)

    return run


def _dispatch(
    context: Context,
    interface: InterfaceType,
    structs: list[StructType],
    name: str,
    target: Value,
    positional: list[Value],
    keywords: dict[str, Value],
    at: ast.AST,
) -> Value:
    span = context.span(at)
    result = interface.methods[name].signature.result
    declared = interface if result.variable is SELF else result.type
    values = [target, *positional, *keywords.values()]
    outer = [node_of(value, span) for value in values]
    inputs = [input_node(Key(name), node.type) for node in outer]
    inner = [
        Value(value.type, node, weak=value.weak, flow=value.flow, aliases=aliases_of(value))
        for value, node in zip(values, inputs, strict=True)
    ]
    results: list[Value] = []
    for struct in structs:
        receiver = with_aliases(runtime(struct, interface.unpack(struct, inputs[0]), target.flow), aliases_of(target))
        arguments = inner[1 : 1 + len(positional)]
        keyword_arguments = dict(zip(keywords, inner[1 + len(positional) :], strict=True))
        result = call_value(context, struct.methods[name], [receiver, *arguments], keyword_arguments, at)
        results.append(result if declared is None else convert(result, declared, span, f"the result of `{name}`"))
    type = results[0].type
    assert type is not None
    branches = tuple(make_function(name, inputs, [node_of(convert(r, type, span), span)]) for r in results)
    node = switch(member(outer[0], 0), *outer, branches=branches)
    result = with_aliases(runtime(type, node), merge_aliases(*map(aliases_of, results)))
    return context.with_flow(result, "operation", results, at, name) if flows_of(*results) else result


# --- conversion ------------------------------------------------------------------------------------------------------


def _convert(value: Value, target: FrontType, span: Span | None) -> Any:
    if isinstance(target, InterfaceDifferential) and isinstance(value.type, RecordType):
        return _convert_differential(value, target, span)
    if not isinstance(target, InterfaceType) or value.type is target:
        return None
    if isinstance(value.type, StructType) and value.type in target.implementers:
        if span is None or value.node is None:
            return Value(target)
        return Value(target, target.pack(value.type, value.node), flow=value.flow)
    if isinstance(value.type, InterfaceType) and all(s in target.implementers for s in value.type.implementers):
        if span is None or value.node is None:
            return Value(target)
        return Value(target, _repack(value.type, target, value.node), flow=value.flow)
    return None


def _convert_differential(value: Value, target: InterfaceDifferential, span: Span | None) -> Any:
    for struct in target.interface.implementers:
        if struct.differential is value.type:
            if span is None or value.node is None:
                return Value(target)
            return Value(target, target.pack(struct, value.node), flow=value.flow)
    return None


def _repack(source: InterfaceType, target: InterfaceType, node: Node) -> Node:
    """Converts a value of an interface to another interface that all its structs implement."""
    parameter = input_node(Key("value"), node.type)
    branches = tuple(
        make_function(target.name, [parameter], [target.pack(struct, source.unpack(struct, parameter))])
        for struct in source.require_implementers()
    )
    return switch(member(node, 0), node, branches=branches)


def _join(first: FrontType, second: FrontType) -> FrontType | None:
    """The common type of two structs: the nearest interface that both implement."""
    if not isinstance(first, StructType) or not isinstance(second, StructType):
        return None
    common = [base for base in interfaces_of(first.cls) if base in interfaces_of(second.cls)]
    return common[0] if common else None


def interfaces_of(cls: type) -> list[InterfaceType]:
    """The interfaces that a class implements, nearest first."""
    interfaces = [vars(base).get("__livegrad_interface__") for base in cls.__mro__]
    return [interface for interface in interfaces if isinstance(interface, InterfaceType)]


# --- type tests ------------------------------------------------------------------------------------------------------


@intrinsic("isinstance")
def _is_instance(context: Context, values: Sequence[Value], at: ast.AST) -> Value:
    """`isinstance(value, cls)`: decided at compile time, except for interface values, whose tag is compared at run
    time.
    """
    require_count(context, values, 2, "isinstance", at)
    value, class_argument = values
    candidates = class_argument.static
    if class_argument.items is not None:
        candidates = tuple(item.static for item in class_argument.items)
    classes = candidates if isinstance(candidates, tuple) else (candidates,)
    if not all(isinstance(cls, type) for cls in classes):
        raise context.error("LG108", "`isinstance` takes a class", at)
    if isinstance(value.type, InterfaceType):
        structs = value.type.require_implementers()
        tags = [tag for tag, struct in enumerate(structs) if issubclass(struct.cls, classes)]
        if len(tags) in (0, len(structs)):
            return static(bool(tags))
        stored_tag = member(node_of(value, context.span(at)), 0)
        return runtime(bool_, reduce(bit_or, [equal(stored_tag, tag) for tag in tags]))
    if isinstance(value.type, StructType):
        return static(issubclass(value.type.cls, classes))
    if isinstance(value.type, Scalar):
        kinds = {"float": float, "signed": int, "unsigned": int, "bool": bool, "complex": complex}
        return static(issubclass(kinds[value.type.kind], classes))
    if value.type is None and value.is_static:
        return static(isinstance(value.static, classes))
    raise context.error("LG108", f"`isinstance` cannot tell what {name_of(value)} is", at)


def _narrow_to_class(value: Value, cls: Any) -> Value | None:
    """Narrows an interface value to a class; None if no struct, or more than one, is of the class."""
    if not isinstance(value.type, InterfaceType) or value.node is None or not isinstance(cls, type):
        return None
    structs = [struct for struct in value.type.implementers if issubclass(struct.cls, cls)]
    if len(structs) != 1:
        return None
    return runtime(structs[0], value.type.unpack(structs[0], value.node), value.flow)


# --- the decorator and registration ----------------------------------------------------------------------------------


def interface(cls: type) -> type:
    """Turns a class into an interface. Structs implement it by inheritance; its methods are dispatched at run time.

    >>> @interface
    ... class Shape:
    ...     pass
    >>> Shape.__livegrad_type__
    Shape
    """
    if not isinstance(cls, type):
        raise FunctionError("LG109", f"{shown(cls)} is not a class", help="decorate a class")
    if is_decorated(cls, InterfaceType):
        return cls
    interface_type = InterfaceType(cls)
    for name, method in vars(cls).items():
        if isinstance(method, CapturedFunction) and not name.startswith("__"):
            method.dispatch()
    cls.__livegrad_interface__ = interface_type  # type: ignore[attr-defined]
    cls.__livegrad_type__ = interface_type  # type: ignore[attr-defined]
    for parent in interfaces_of(cls)[1:]:
        if interface_type not in parent.children:
            parent.children.append(interface_type)
    return cls


def _register(struct: StructType) -> None:
    """Registers a struct with the interfaces that it inherits from; raises if it lacks one of their methods."""
    for interface in interfaces_of(struct.cls):
        for name in interface.methods:
            method = struct.methods.get(name)
            if method is None or method is interface.methods[name]:
                raise FunctionError(
                    "LG401",
                    f"{struct.name} does not implement `{name}` of {interface.name}",
                    struct.span,
                    help=f"define `{name}` in {struct.name}",
                )
            if interface.methods[name].differentiable and not getattr(method, "differentiable", False):
                raise FunctionError(
                    "LG401",
                    f"`{name}` of {struct.name} is not differentiable, "
                    f"but {interface.name} declares it as differentiable",
                    struct.span,
                    help="decorate it with @differentiable",
                )
            _require_same_signature(interface, struct, name, method)
        if (
            not any(struct in child.implementers for child in interface.children)
            and struct not in interface.own_implementers
        ):
            interface.own_implementers.append(struct)


def _require_same_signature(interface: InterfaceType, struct: StructType, name: str, method: Any) -> None:
    """Raises if a method does not have the signature that the interface declares. Annotations that cannot be read yet,
    such as strings, are checked at the call.
    """
    declared, implemented = (
        inspect.signature(getattr(m, "python_function", m)) for m in (interface.methods[name], method)
    )
    expected, actual = list(declared.parameters.values())[1:], list(implemented.parameters.values())[1:]
    pairs = list(zip(expected, actual, strict=False))
    is_compatible = (
        len(actual) >= len(expected)
        and all(parameter.default is not parameter.empty for parameter in actual[len(expected) :])
        and all(a.kind is b.kind and _annotations_match(a.annotation, b.annotation) for a, b in pairs)
        and _annotations_match(declared.return_annotation, implemented.return_annotation)
    )
    if not is_compatible:
        raise FunctionError(
            "LG401",
            f"`{name}` of {struct.name} has a different signature from the one in {interface.name}",
            struct.span,
            expected=f"{name}{declared}",
            found=f"{name}{implemented}",
        )


def _annotations_match(declared: Any, implemented: Any) -> bool:
    """Whether two annotations may denote the same values; only types of numbers and vectors must be equal."""
    try:
        types = [read_annotation(annotation).type for annotation in (declared, implemented)]
    except (TypeError, FunctionError):
        return True
    return types[0] == types[1] or not all(isinstance(type, Scalar | Vector | Matrix) for type in types)


def _check_bound(variable: TypeVar, type: FrontType) -> str | None:
    """The reason why a type does not satisfy the bound of a type variable, or None if it does."""
    bound = variable.__bound__
    if bound is None:
        return None
    if bound is Differentiable:
        return None if differential_type(type) is not None else f"must be differentiable, found {describe(type)}"
    interface = getattr(bound, "__livegrad_type__", None)
    if not isinstance(interface, InterfaceType) or type is interface:
        return None
    if isinstance(type, StructType) and type in interface.implementers:
        return None
    return f"must implement {interface.name}, found {describe(type)}"


RULES = TypeRules(
    conversion=_convert,
    join=_join,
    method=_method,
    class_narrowing=_narrow_to_class,
    struct=_register,
    bound=_check_bound,
)
