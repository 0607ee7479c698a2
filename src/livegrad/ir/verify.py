"""Verifies the invariants of functions and modules; the error names the user's line of the first violation.

The pass driver calls this after each pass. Verified functions are not checked again.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable

from livegrad.diagnostics import LivegradError, VerifyError
from livegrad.ir.dimension import Dimension
from livegrad.ir.leaves import input_op, parameter_op
from livegrad.ir.node import Attribute, Function, Key, Module, Node, is_interned
from livegrad.ir.op import Op
from livegrad.ir.types import Type
from livegrad.ir.walk import functions_in, nodes_of, ops_below, ops_in, reachable_functions
from livegrad.state import Owned

_EXACT_KINDS = frozenset((bool, int, float, complex, str, type(None), Dimension, Function, Key))


_verified: Owned[weakref.WeakSet[Function]] = Owned(weakref.WeakSet)  # including the functions they use


def verify_function(function: Function, *, allow_inputs: bool = False, forbidden: Collection[Op] = ()) -> None:
    """Raises `VerifyError` if a function, or a function that it uses, violates an invariant of the IR.

    `allow_inputs` permits keyed inputs; ops in `forbidden` must not occur anywhere.
    """
    _verify((function,), allow_inputs, frozenset(forbidden))


def verify_module(
    module: Module,
    *,
    allow_inputs: bool = False,
    forbidden: Collection[Op] = (),
    before: Module | None = None,
) -> None:
    """`verify_function` for every function of a module; their names must be unique.

    Nodes of `before`, the verified input of the pass, are not checked again.
    """
    names: set[str] = set()
    for function in module.functions:
        if function.name in names:
            raise VerifyError(f"a module has two functions named `{function.name}`", help="rename one of them")
        names.add(function.name)
    verified_before = (
        set[Node]() if before is None else {node for function in before.functions for node in nodes_of(function)}
    )
    _verify(module.functions, allow_inputs, frozenset(forbidden), verified_before)


def _verify(
    functions: Iterable[Function], allow_inputs: bool, forbidden: frozenset[Op], outer_nodes: Collection[Node] = ()
) -> None:
    functions, verified = tuple(functions), _verified.current
    pending = [function for function in functions if function not in verified]
    visited = set(pending)
    while pending:
        function = pending.pop()
        _check_structure(function, outer_nodes)
        used = [inner for inner in functions_in(function) if inner not in visited and inner not in verified]
        visited.update(used)
        pending += used
    verified.update(visited)
    unwanted = forbidden if allow_inputs else forbidden | {input_op}
    for function in functions:
        if not ops_below(function).isdisjoint(unwanted):
            inner_functions = reachable_functions([function])
            culprit = next(inner for inner in inner_functions if not ops_in(inner).isdisjoint(unwanted))
            raise _unwanted_op_error(culprit, unwanted)


def _check_structure(function: Function, outer_nodes: Collection[Node]) -> None:
    _check_parameters(function)
    parameters = set(function.parameters)
    for node in _collect_nodes(function):
        if node not in outer_nodes:
            if node.attributes:
                _check_attributes(function, node)
            if not is_interned(node):
                raise _not_interned_error(function, node)  # an interned node has the type that its op derived
        if node.op is parameter_op and node not in parameters:
            raise _violation(
                function,
                node,
                "is not one of the function's parameters",
                expected=f"an index below {len(function.parameters)} with that parameter's type",
                found=f"index {node.attribute('index')} of type {node.type}",
                help="pass the value as an operand and give the function a parameter for it",
            )


def _collect_nodes(function: Function) -> list[Node]:
    for result in function.results:
        if not isinstance(result, Node):
            raise VerifyError(f"function `{function.name}` returns something that is not a node", found=repr(result))
    try:
        return list(nodes_of(function))
    except (AttributeError, TypeError) as error:  # an operand without operands is not a node
        raise VerifyError(f"function `{function.name}` has an operand that is not a node", found=str(error)) from None


def _check_parameters(function: Function) -> None:
    for index, node in enumerate(function.parameters):
        if not isinstance(node, Node) or node.op is not parameter_op or node.attribute("index") != index:
            raise VerifyError(
                f"function `{function.name}`: parameter {index} is not a parameter node of that index",
                where=node.origin if isinstance(node, Node) else None,
                found=_describe_parameter(node),
                help="create the function with make_function, which numbers its parameters",
            )


def _check_attributes(function: Function, node: Node) -> None:
    previous = ""
    for name, value in node.attributes:
        if name <= previous:
            raise _violation(
                function, node, f"has unsorted attributes: `{name}` follows `{previous}`", help="sort them by name"
            )
        previous = name
        pending: list[Attribute] = [value]
        while pending:
            item = pending.pop()
            kind = item.__class__
            if kind is tuple:
                pending.extend(item)
            elif kind not in _EXACT_KINDS and not isinstance(item, Type | Key):
                raise _violation(
                    function,
                    node,
                    f"has an attribute `{name}` of an unsupported type",
                    expected="bool, int, float, complex, str, None, a type, size, function or key, or a tuple of those",
                    found=f"{item!r} of {item.__class__.__name__}",
                    help="convert it, for instance with float(...)",
                )


def _not_interned_error(function: Function, node: Node) -> VerifyError:
    """Explains what is wrong with a node that was not created by an op."""
    if node.operands.__class__ is not tuple:
        return _violation(function, node, "has operands that are not a tuple", found=repr(node.operands))
    try:
        derived = node.op.derive_type(node.operands, node.attributes, node.origins)
    except LivegradError as error:
        return VerifyError(
            f"function `{function.name}`: {error.what}",
            where=error.where,
            expected=error.expected,
            found=error.found,
            help=error.help,
        )
    if derived is not node.type:
        return _violation(
            function,
            node,
            "does not have the type that its op derives",
            expected=str(derived),
            found=str(node.type),
            help="create nodes by calling ops",
        )
    return _violation(function, node, "is not interned", help="create nodes by calling ops, and do not copy them")


def _unwanted_op_error(function: Function, unwanted: frozenset[Op]) -> VerifyError:
    node = next(node for node in nodes_of(function) if node.op in unwanted)
    if node.op is input_op:
        return _violation(
            function,
            node,
            "is an outer value, but the function must be closed",
            found=repr(node.attribute("key")),
            help="make it a parameter, or verify with allow_inputs=True",
        )
    return _violation(
        function, node, "still exists after the pass that removes it", help="give the pass a rule for this case"
    )


def _describe_parameter(node: object) -> str:
    if not isinstance(node, Node) or node.op is not parameter_op:
        return repr(node)
    return f"parameter {node.attribute('index')} of type {node.type}"


def _violation(
    function: Function,
    node: Node,
    rule: str,
    *,
    expected: str | None = None,
    found: str | None = None,
    help: str | None = None,
) -> VerifyError:
    what = f"function `{function.name}`: `{node.op.name}` {rule}"
    where = next(iter(node.origins or function.origins_of(node)), None)
    return VerifyError(what, where=where, expected=expected, found=found, help=help)
