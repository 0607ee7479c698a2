"""One function as lines of C: a name for each value, branches and loops over calls of the functions that they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from livegrad.backends.c_family.dialect import Dialect
from livegrad.backends.c_family.expressions import cast, expression, fits, has_expression, takes_whole_vectors
from livegrad.backends.sites import Site
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import Tensor, Tuple, Type, components, scalar_of
from livegrad.ir.walk import nodes_of
from livegrad.passes.expand import expand_ops

if TYPE_CHECKING:
    from livegrad.backends.c_family.source import Source

# Short, or written by rules that have named their value already.
_INLINE = frozenset({"get", "splat", "detach", "check", "cond", "switch", "for_loop", "while_loop"})


def may_fail(function: Function) -> bool:
    """Whether a function has a check of its own to make."""
    return any(node.op.checked and _may_fail(node) for node in nodes_of(function))


def _may_fail(node: Node) -> bool:
    scalar = scalar_of(node.operands[-1].type)
    if node.op.name == "cast":
        target = scalar_of(node.type)
        return bool(scalar and target and scalar.kind == "float" and target.kind in ("signed", "unsigned"))
    return node.op.name != "while_loop" or node.attribute("limit") is not None


def write_out(function: Function, dialect: Dialect) -> Function:
    """The function with all ops expanded that have no C of their own."""
    return expand_ops(function, lambda node: _needs_expansion(node, dialect))


def _needs_expansion(node: Node, dialect: Dialect) -> bool:
    op = node.op
    if op.expand is None or op.name in RULES:
        return False
    if op.name in dialect.geometry:
        sizes = [len(components(operand.type)) for operand in node.operands]
        scalar = scalar_of(node.operands[0].type)
        is_float = scalar is not None and scalar.kind == "float"
        return not is_float or any(size not in ((3,) if op.name == "cross" else (2, 3, 4)) for size in sizes)
    return not (op.elementwise and has_expression(node))


class Body:
    """The lines of one function."""

    def __init__(self, source: Source, function: Function, plain: Function) -> None:
        self.source = source
        self.types = source.types
        self.checks = function in source.failing
        self.plain = plain
        self.used = {operand for node in nodes_of(self.plain) for operand in node.operands}
        self.values: dict[Node, str] = {}
        self.lines: list[str] = []
        self.count = 0

    def text(self, name: str) -> str:
        function = self.plain
        parameters = [f"{self.types.name(p.type)} p{index}" for index, p in enumerate(function.parameters)]
        if self.checks:
            parameters.append("int* status")
        for node in nodes_of(function):
            self.values[node] = self._write(node)
        result_type = function.result_type
        results = [self.values[result] for result in function.results]
        returned = results[0] if len(results) == 1 else self.types.make(result_type, results)
        prefix = self.source.dialect.function_prefix
        head = f"{prefix}{self.types.name(result_type)} {name}({', '.join(parameters) or 'void'})"
        return "\n".join([head, "{", *self.lines, f"    return {returned};", "}", ""])

    # --- values -------------------------------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        name = f"{prefix}{self.count}"
        self.count += 1
        return name

    def named(self, type: Type, text: str) -> str:
        """A new name for an expression."""
        name = self.fresh("v")
        self.lines.append(f"    const {self.types.name(type)} {name} = {text};")
        return name

    def _write(self, node: Node) -> str:
        if node.op is parameter_op:
            return f"p{node.attribute('index')}"
        if node.op is constant_op:
            return self.types.literal(node.attribute("value"), node.type)  # type: ignore[arg-type]
        rule = RULES.get(node.op.name)
        text = rule(self, node) if rule is not None else self._elementwise(node)
        if node.op.name in _INLINE or (node in self.plain.results and node not in self.used):
            return text  # short, or returned and nothing else: no line of its own
        return self.named(node.type, text)

    def component(self, node: Node, index: int) -> str:
        """One component of a value; that of a number is the number."""
        if not components(node.type):
            return self.values[node]
        if node.op.name == "splat":
            return self.values[node.operands[0]]
        if node.op.name == "make":
            return self.values[node.operands[index]]
        if node.op.name == "detach":
            return self.component(node.operands[0], index)
        return self.types.member(self.values[node], node.type, index)

    def _elementwise(self, node: Node) -> str:
        if node.op.name in self.source.dialect.geometry:
            assert node.op.code is not None
            return node.op.code.format(*[self.values[operand] for operand in node.operands])
        if not node.op.elementwise or not has_expression(node):
            raise CompileError(f"`{node.op.name}` has no {self.source.dialect.name}", where=node.origin)
        if not components(node.type) or takes_whole_vectors(self.types, node):
            return self._component(node, [self.values[operand] for operand in node.operands])
        rows = range(len(components(node.type)))
        parts = [self._component(node, [self.component(operand, row) for operand in node.operands]) for row in rows]
        return self.types.make(node.type, parts)

    def _component(self, node: Node, operands: list[str]) -> str:
        if node.op.name == "cast":
            return self._cast(node, operands[0])
        if node.op.name in ("floor_div", "mod") and self.checks:
            divisor = operands[1]
            self.check(f"{divisor} == 0", "integer division by zero", node)
            operands = [operands[0], f"({divisor} == 0 ? 1 : {divisor})"]
        return expression(self.types, node, operands)

    def _cast(self, node: Node, text: str) -> str:
        source, target = scalar_of(node.operands[0].type), scalar_of(node.type)
        assert source is not None
        assert target is not None
        condition = fits(self.types, text, source, target) if self.checks else None
        if condition is None:
            return cast(self.types, text, source, target)
        self.check(f"!{condition}", f"a value that no {target} can hold", node)
        return cast(self.types, f"({condition} ? {text} : 0)", source, target)

    # --- checks -------------------------------------------------------------------------------------------------------

    def check(self, bad: str | None, message: str, node: Node) -> None:
        """Keeps the first site that fails, where the text is checked at all; without a condition, it fails here."""
        if not self.checks:
            return
        self.source.sites.append(Site(message, node.origin))
        condition = "*status == 0" if bad is None else f"*status == 0 && {bad}"
        self.lines.append(f"    if ({condition}) *status = {len(self.source.sites)};")

    def check_range(self, operand: Node, size: int, message: str, node: Node) -> str:
        """An index, kept within its range where that is checked."""
        index = self.values[operand]
        if not self.checks or (operand.op is constant_op and 0 <= operand.attribute("value") < size):
            return index
        bad = f"(({self.source.dialect.unsigned[64]}){index} >= {size})"
        self.check(bad, message, node)
        return f"({bad} ? 0 : {index})"


# --- structure --------------------------------------------------------------------------------------------------------


def _operands(body: Body, node: Node) -> list[str]:
    return [body.values[operand] for operand in node.operands]


def _make(body: Body, node: Node) -> str:
    return body.types.make(node.type, _operands(body, node))


def _get(body: Body, node: Node) -> str:
    return body.component(node.operands[0], node.attribute("index"))


def _set(body: Body, node: Node) -> str:
    value, changed = node.operands
    members = [body.component(value, index) for index in range(len(components(node.type)))]
    members[node.attribute("index")] = body.values[changed]
    return body.types.make(node.type, members)


def _splat(body: Body, node: Node) -> str:
    return body.types.make(node.type, [body.values[node.operands[0]]] * len(components(node.type)))


def _get_at(body: Body, node: Node) -> str:
    value, index = node.operands
    size = len(components(value.type))
    at = body.check_range(index, size, f"index out of range for {size} members", node)
    chosen = body.component(value, size - 1)
    for position in range(size - 2, -1, -1):
        chosen = f"({at} == {position} ? {body.component(value, position)} : {chosen})"
    return chosen


def _set_at(body: Body, node: Node) -> str:
    value, index, changed = node.operands
    size = len(components(value.type))
    at = body.check_range(index, size, f"index out of range for {size} members", node)
    parts = [f"({at} == {place} ? {body.values[changed]} : {body.component(value, place)})" for place in range(size)]
    return body.types.make(node.type, parts)


def _check(body: Body, node: Node) -> str:
    value, condition = node.operands
    body.check(f"!{body.values[condition]}", node.attribute("message"), node)
    return body.values[value]


def _lookup(body: Body, node: Node) -> str:
    tensor, *indices = node.operands
    type = tensor.type
    assert isinstance(type, Tensor)
    sizes = [size for size in type.shape if isinstance(size, int)]
    if len(sizes) != len(type.shape) or isinstance(node.type, Tensor):
        name = body.source.dialect.name
        raise CompileError(f"{name} reads single elements of tensors of known size", where=node.origin)
    places = [
        body.check_range(index, size, f"index out of range for axis {axis}", node)
        for axis, (index, size) in enumerate(zip(indices, sizes, strict=True))
    ]
    place = places[0] if places else "0"
    for index, size in zip(places[1:], sizes[1:], strict=True):
        place = f"({place} * {size} + {index})"
    return body.types.loaded(f"{body.values[tensor]}[{place}]", type.element)


def _call(body: Body, node: Node) -> str:
    return body.source.call(node.attribute("function"), _operands(body, node))


# --- branches and loops -----------------------------------------------------------------------------------------------


def _branches(body: Body, node: Node, functions: list[tuple[str, Function]], arguments: list[str]) -> str:
    result = body.fresh("c")
    body.lines.append(f"    {body.types.name(node.type)} {result};")
    body.lines += [f"    {head}{result} = {body.source.call(function, arguments)};" for head, function in functions]
    return result


def _cond(body: Body, node: Node) -> str:
    condition, *arguments = _operands(body, node)
    heads = [(f"if ({condition}) ", node.attribute("then")), ("else ", node.attribute("otherwise"))]
    return _branches(body, node, heads, arguments)


def _switch(body: Body, node: Node) -> str:
    _, *arguments = _operands(body, node)
    branches = node.attribute("branches")
    message = f"switch on a number that has no branch ({len(branches)} branches)"
    index = body.check_range(node.operands[0], len(branches), message, node)
    last = len(branches) - 1
    heads = [
        (("else " if number else "") + (f"if ({index} == {number}) " if number < last else ""), function)
        for number, function in enumerate(branches)
    ]
    return _branches(body, node, heads, arguments)


def _for_loop(body: Body, node: Node) -> str:
    trips, *values = _operands(body, node)
    counter = body.fresh("n")
    head = f"for ({body.source.dialect.index} {counter} = 0; {counter} < {trips}; ++{counter})"
    index = f"({trips} - 1 - {counter})" if node.attribute("reverse") else counter
    state, step = _state(body, node, index, values)
    body.lines.append(f"    {head} {step}")
    return state


def _while_loop(body: Body, node: Node) -> str:
    values = _operands(body, node)
    carried, limit = node.attribute("carried"), node.attribute("limit")
    counter = body.fresh("n")
    state, step = _state(body, node, counter, values)
    held = [f"{state}.r{index}" for index in range(carried)] + values[carried:]
    test = body.source.call(node.attribute("condition"), held)
    head = f"for ({body.source.dialect.index} {counter} = 0; {test}; ++{counter})"
    if limit is None:
        body.lines.append(f"    {head} {step}")
        return state
    body.lines += [f"    {head}", "    {", f"        if ({counter} >= {limit})", "        {"]
    body.check(None, f"the loop ran past its limit of {limit}", node)
    body.lines += ["            break;", "        }", f"        {step}", "    }"]
    return state


def _state(body: Body, node: Node, index: str, values: list[str]) -> tuple[str, str]:
    """The variable that a loop carries its values in, and the statement that takes them one trip further."""
    carried = node.attribute("carried")
    function: Function = node.attribute("body")
    state = body.fresh("s")
    body.lines.append(f"    {body.types.name(node.type)} {state} = {body.types.make(node.type, values[:carried])};")
    held = [f"{state}.r{place}" for place in range(carried)] + values[carried:]
    stepped = body.source.call(function, [index, *held])
    if carried == 1:
        stepped = body.types.make(Tuple(function.result_types), [stepped])
    return state, f"{state} = {stepped};"


RULES: dict[str, Callable[[Body, Node], str]] = {
    "make": _make,
    "get": _get,
    "set": _set,
    "splat": _splat,
    "get_at": _get_at,
    "set_at": _set_at,
    "detach": lambda body, node: body.values[node.operands[0]],
    "check": _check,
    "lookup": _lookup,
    "call": _call,
    "cond": _cond,
    "switch": _switch,
    "for_loop": _for_loop,
    "while_loop": _while_loop,
}
