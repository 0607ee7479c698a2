"""Functions of the value IR as OpenCL C: one C function for each, one line for each value, under readable names.

`opencl_source` gives the functions, `kernel_source` adds a kernel that runs one over arrays of points. Pure text: no
OpenCL library is needed.
"""

from __future__ import annotations

from collections.abc import Callable

from livegrad.backends.opencl.types import Types, identifier, literal
from livegrad.diagnostics import CompileError
from livegrad.ir.leaves import constant_op, parameter_op
from livegrad.ir.node import Function, Module, Node
from livegrad.ir.types import Tensor, Tuple, Type, Vector, bool_, components, scalar_of
from livegrad.ir.walk import nodes_of, reachable_functions
from livegrad.passes.differentiate.lower import differentiate
from livegrad.passes.expand import expand_ops
from livegrad.passes.optimize_outputs import optimize_outputs

# Where C means something else than the op, or has no name for it. They hold for scalars and vectors alike.
_CODE = {
    "minimum": "((({1} < {0}) | isnan({1})) ? {1} : {0})",
    "maximum": "((({1} > {0}) | isnan({1})) ? {1} : {0})",
    "detach": "{0}",
    "equal": "({0} == {1})",
    "bit_xor": "({0} ^ {1})",
}
_STRUCTURE = frozenset({"make", "get", "splat", "call", "cond", "for_loop", "while_loop", "lookup", "cast", "bit_not"})


def opencl_source(function: Function) -> str:
    """The function, and all that it calls, as OpenCL C.

    >>> from livegrad import ops
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import Vector, f32
    >>> print(opencl_source(trace(lambda p: ops.length(p) - 1.0, Vector(f32, 3), name="ball")))
    float ball(float3 p0)
    {
        const float v0 = length(p0);
        return (v0 - 1.0f);
    }
    <BLANKLINE>
    """
    return _Source(function).text()


def kernel_source(function: Function, lifted: tuple[bool, ...], name: str = "evaluate") -> str:
    """The function with a kernel over arrays: a lifted parameter has one value for each work item, packed densely."""
    source = _Source(function)
    return source.text() + "\n" + source.kernel(lifted, name)


def _prepared(function: Function) -> Function:
    """The function without derivatives to be made and results nobody reads."""
    return optimize_outputs(differentiate(Module((function,)))).functions[0]


def _should_expand(node: Node) -> bool:
    if node.op.name in _STRUCTURE or node.op in (constant_op, parameter_op) or node.op.name in _CODE:
        return False
    return node.op.expand is not None and (node.op.code is None or "lg_" in node.op.code)


class _Source:
    """The text of a function and of those that it uses, users last."""

    def __init__(self, function: Function) -> None:
        self.types = Types()
        self.names: dict[Function, str] = {}
        self.root = _prepared(function)
        self.bodies: list[str] = []
        for inner in reachable_functions([self.root]):
            self.names[inner] = self._free(identifier(inner.name))
            self.bodies.append(_Body(self, inner).text(self.names[inner]))

    def _free(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.names.values():
            number += 1
            name = f"{wanted}_{number}"
        return name

    def text(self) -> str:
        doubles = any("double" in body for body in self.bodies)
        pragma = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] if doubles else []
        return "\n".join([*pragma, *self.types.declarations, *self.bodies])

    def kernel(self, lifted: tuple[bool, ...], name: str) -> str:
        function = self.root
        inputs, arguments = [], []
        for index, (type, flag) in enumerate(zip(function.parameter_types, lifted, strict=True)):
            if flag or (len(components(type)) and not isinstance(type, Tensor)):
                element = scalar_of(type)
                inputs.append(f"__global const {self.types.name(element)}* a{index}")  # type: ignore[arg-type]
                arguments.append(self._loaded(f"a{index}", type, "i" if flag else "0"))
            else:
                inputs.append(f"{self.types.name(type)} a{index}")
                arguments.append(f"a{index}")
        outputs = [f"__global {self.types.name(scalar_of(t))}* y{i}" for i, t in enumerate(function.result_types)]  # type: ignore[arg-type]
        result = self.types.name(function.result_type)
        lines = [f"    const {result} value = {self.names[function]}({', '.join(arguments)});"]
        for index, type in enumerate(function.result_types):
            single = len(function.results) == 1
            value = "value" if single else self.types.member("value", function.result_type, index)
            lines += self._stored(f"y{index}", value, type)
        head = f"__kernel void {name}(const long count, {', '.join([*inputs, *outputs])})"
        guard = "    const long i = get_global_id(0);\n    if (i >= count) return;"
        return f"{head}\n{{\n{guard}\n" + "\n".join(lines) + "\n}\n"

    def _loaded(self, name: str, type: Type, at: str) -> str:
        count = len(components(type))
        if not count:
            return f"{name}[{at}]"
        return self.types.make(type, [f"{name}[{at} * {count} + {index}]" for index in range(count)])

    def _stored(self, name: str, value: str, type: Type) -> list[str]:
        count = len(components(type))
        if not count:
            return [f"    {name}[i] = {value};"]
        members = (self.types.member(value, type, index) for index in range(count))
        return [f"    {name}[i * {count} + {index}] = {member};" for index, member in enumerate(members)]


class _Body:
    """The lines of one function."""

    def __init__(self, source: _Source, function: Function) -> None:
        self.source = source
        self.types = source.types
        self.function = function
        self.plain = expand_ops(function, _should_expand)
        self.used = {operand for node in nodes_of(self.plain) for operand in node.operands}
        self.values: dict[Node, str] = {}
        self.lines: list[str] = []
        self.count = 0

    def text(self, name: str) -> str:
        function = self.plain
        parameters = [f"{self.types.name(p.type)} p{index}" for index, p in enumerate(function.parameters)]
        for node in nodes_of(function):
            self.values[node] = self._write(node)
        result_type = function.result_type
        results = [self.values[result] for result in function.results]
        returned = results[0] if len(results) == 1 else self.types.make(result_type, results)
        head = f"{self.types.name(result_type)} {name}({', '.join(parameters) or 'void'})"
        return "\n".join([head, "{", *self.lines, f"    return {returned};", "}", ""])

    def _named(self, type: Type, expression: str, prefix: str = "v") -> str:
        name = f"{prefix}{self.count}"
        self.count += 1
        self.lines.append(f"    const {self.types.name(type)} {name} = {expression};")
        return name

    def _write(self, node: Node) -> str:
        if node.op is parameter_op:
            return f"p{node.attribute('index')}"
        if node.op is constant_op:
            return literal(node.attribute("value"), node.type)  # type: ignore[arg-type]
        operands = [self.values[operand] for operand in node.operands]
        rule = _RULES.get(node.op.name)
        expression = rule(self, node, operands) if rule is not None else self._by_template(node, operands)
        if node.op.name in ("get", "splat", "detach") or (node in self.plain.results and node not in self.used):
            return expression  # short, or returned and nothing else: no line of its own
        return self._named(node.type, expression)

    def _by_template(self, node: Node, operands: list[str]) -> str:
        template = _CODE.get(node.op.name) or node.op.code
        if template is None or "lg_" in template:
            raise CompileError(f"`{node.op.name}` has no OpenCL C", where=node.origin)
        if node.op.name == "abs" and scalar_of(node.type).kind != "float":  # type: ignore[union-attr]
            template = "abs({0})"
        return template.format(*operands)

    # --- structure ----------------------------------------------------------------------------------------------------

    def _make(self, node: Node, operands: list[str]) -> str:
        return self.types.make(node.type, operands)

    def _get(self, node: Node, operands: list[str]) -> str:
        return self.types.member(operands[0], node.operands[0].type, node.attribute("index"))

    def _splat(self, node: Node, operands: list[str]) -> str:
        return f"({self.types.name(node.type)})({operands[0]})"

    def _call(self, node: Node, operands: list[str]) -> str:
        return f"{self.source.names[node.attribute('function')]}({', '.join(operands)})"

    def _cond(self, node: Node, operands: list[str]) -> str:
        condition, *arguments = operands
        names = [self.source.names[node.attribute(branch)] for branch in ("then", "otherwise")]
        given = ", ".join(arguments)
        result = f"c{self.count}"
        self.count += 1
        self.lines.append(f"    {self.types.name(node.type)} {result};")
        self.lines.append(f"    if ({condition}) {result} = {names[0]}({given}); else {result} = {names[1]}({given});")
        return result

    def _for_loop(self, node: Node, operands: list[str]) -> str:
        trips, *values = operands
        counter = f"n{self.count}"
        count = f"for (long {counter} = 0; {counter} < {trips}; ++{counter})"
        index = f"({trips} - 1 - {counter})" if node.attribute("reverse") else counter
        return self._loop(node, count, index, values)

    def _while_loop(self, node: Node, operands: list[str]) -> str:
        carried = node.attribute("carried")
        state = f"s{self.count}"
        held = [f"{state}.r{index}" for index in range(carried)] + operands[carried:]
        counter = f"n{self.count}"
        test = f"{self.source.names[node.attribute('condition')]}({', '.join(held)})"
        return self._loop(node, f"for (long {counter} = 0; {test}; ++{counter})", counter, operands)

    def _loop(self, node: Node, head: str, index: str, values: list[str]) -> str:
        carried = node.attribute("carried")
        state = f"s{self.count}"
        self.count += 1
        self.lines.append(f"    {self.types.name(node.type)} {state} = {self.types.make(node.type, values[:carried])};")
        held = [f"{state}.r{place}" for place in range(carried)] + values[carried:]
        body: Function = node.attribute("body")
        stepped = f"{self.source.names[body]}({', '.join([index, *held])})"
        if carried == 1:
            stepped = self.types.make(Tuple(body.result_types), [stepped])
        self.lines.append(f"    {head} {state} = {stepped};")
        return state

    def _lookup(self, node: Node, operands: list[str]) -> str:
        table, *indices = operands
        type = node.operands[0].type
        assert isinstance(type, Tensor)
        if any(not isinstance(size, int) for size in type.shape) or isinstance(node.type, Tensor):
            raise CompileError("OpenCL C reads single elements of tensors of known size", where=node.origin)
        place = indices[0] if indices else "0"
        for index, size in zip(indices[1:], type.shape[1:], strict=True):
            place = f"({place} * {size} + {index})"
        return f"{table}[{place}]"

    def _cast(self, node: Node, operands: list[str]) -> str:
        if isinstance(node.type, Vector):
            return f"convert_{self.types.name(node.type)}({operands[0]})"
        return f"(({self.types.name(node.type)}){operands[0]})"

    def _not(self, node: Node, operands: list[str]) -> str:
        # A condition is 1 or 0, of vectors -1 or 0: only `!` turns both round.
        return f"(!{operands[0]})" if scalar_of(node.type) is bool_ else f"(~{operands[0]})"


_RULES: dict[str, Callable[[_Body, Node, list[str]], str]] = {
    "make": _Body._make,
    "get": _Body._get,
    "splat": _Body._splat,
    "call": _Body._call,
    "cond": _Body._cond,
    "for_loop": _Body._for_loop,
    "while_loop": _Body._while_loop,
    "lookup": _Body._lookup,
    "cast": _Body._cast,
    "bit_not": _Body._not,
}
