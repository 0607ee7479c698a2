"""Emits functions of the value IR as readable C: one C function each, one line per value.

`function_source` returns the functions; `kernel_source` adds a kernel that runs one over arrays of points. The output
is text, so no compiler is needed. `runtime/opencl.py` runs the kernels; `Assembly.to_opencl` and `to_cuda` return the
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from livegrad.codegen.c.aggregates import Types
from livegrad.codegen.c.body import expand_for_dialect, may_fail
from livegrad.codegen.c.dialect import Dialect
from livegrad.codegen.c.helpers import helper_functions
from livegrad.codegen.c.identifiers import identifier
from livegrad.codegen.c.readable_function import FunctionWriter
from livegrad.codegen.check_sites import Site
from livegrad.compiler import lower
from livegrad.ir.node import Function
from livegrad.ir.types import Scalar, Tensor, Type, components, scalar_of
from livegrad.ir.walk import functions_in, nodes_of
from livegrad.schedule.target import SOURCE


def function_source(function: Function, dialect: Dialect) -> str:
    """The function, and all functions that it calls, as C. Indices are not checked.

    >>> from livegrad import ops
    >>> from livegrad.codegen.c.dialect import CUDA
    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import Vector, f32
    >>> print(function_source(trace(lambda p: ops.sqrt(p * 2.0), Vector(f32, 3), name="root"), CUDA))
    __device__ inline float3 root(float3 p0)
    {
        const float3 v0 = make_float3((p0.x * 2.0f), (p0.y * 2.0f), (p0.z * 2.0f));
        return make_float3(sqrtf(v0.x), sqrtf(v0.y), sqrtf(v0.z));
    }
    <BLANKLINE>
    """
    return FunctionText(function, dialect, checked=False).text()


@dataclass(frozen=True)
class KernelSource:
    """The text of a kernel and its check sites.

    If there are sites, the last parameter is an array of one `int` per work item. The kernel stores one plus the index
    of the first site that failed, or 0.
    """

    text: str
    sites: tuple[Site, ...]


def kernel_source(
    function: Function, lifted: tuple[bool, ...], dialect: Dialect, name: str = "evaluate"
) -> KernelSource:
    """The function with a kernel over dense arrays: a lifted parameter has one value per work item."""
    source = FunctionText(function, dialect, checked=True)
    pragma = f"{dialect.kernel_pragma}\n" if dialect.kernel_pragma else ""
    return KernelSource(f"{pragma}{source.text()}\n{source.kernel(lifted, name)}", tuple(source.sites))


class FunctionText:
    """The text of a function and of the functions that it calls, callees first.

    The text has `others` too, which share what they call. No function has a name in `reserved`.
    """

    def __init__(
        self,
        function: Function,
        dialect: Dialect,
        *,
        checked: bool,
        others: Sequence[Function] = (),
        reserved: Iterable[str] = (),
    ) -> None:
        self.dialect = dialect
        self.types = Types(dialect)
        self.checked = checked
        self.sites: list[Site] = []
        self.names: dict[Function, str] = {}
        self.operations: dict[Function, int] = {}  # how many nodes each has when all calls are inlined
        self.failing: set[Function] = set()  # functions that may fail, which take a pointer to the status
        self.root = lower(function, SOURCE)
        self.others = tuple(lower(other, SOURCE) for other in others)
        self.reserved = frozenset(reserved)
        self.bodies: list[str] = []
        for inner, expanded in self._expand_functions():
            self.names[inner] = self._unused_name(identifier(inner.name))
            checks = any(map(may_fail, nodes_of(expanded)))
            if checked and (checks or any(callee in self.failing for callee in functions_in(expanded))):
                self.failing.add(inner)
            self.bodies.append(FunctionWriter(self, inner, expanded).write(self.names[inner]))
            nodes = nodes_of(expanded)
            self.operations[inner] = len(nodes) + sum(
                self.operations[each] for node in nodes for each in node.functions
            )

    def _expand_functions(self) -> Iterator[tuple[Function, Function]]:
        """All functions, callees first, with their expanded bodies; an expansion may call further functions."""
        expanded: dict[Function, Function] = {}
        pending = [(root, False) for root in reversed((self.root, *self.others))]
        while pending:
            function, ready = pending.pop()
            if ready:
                yield function, expanded[function]
            elif function not in expanded:
                expanded[function] = expand_for_dialect(function, self.dialect)
                pending.append((function, True))
                pending.extend((inner, False) for inner in functions_in(expanded[function]) if inner not in expanded)

    def _unused_name(self, base: str) -> str:
        name, suffix = base, 1
        used = {*self.names.values(), *self.reserved}
        while name in used:
            suffix += 1
            name = f"{base.rstrip('_')}_{suffix}"  # GLSL reserves two underscores in a row
        return name

    def text(self) -> str:
        bodies = "\n".join(self.bodies)
        pragma = [self.dialect.double_pragma] if "double" in bodies and self.dialect.double_pragma else []
        helpers = [f"{text}\n" for text in helper_functions(bodies, self.dialect)]
        calls = "".join([*helpers, bodies])
        prelude = [definition for call, definition in self.dialect.prelude.items() if call in calls]
        choices = [self.dialect.struct_choice(name) for name in self.types.structs.values() if _chooses(calls, name)]
        return "\n".join([*pragma, *self.types.declarations, *filter(None, choices), *prelude, *helpers, bodies])

    def call(self, function: Function, arguments: list[str]) -> str:
        """A call of one of the functions; a function that may fail also takes the status."""
        operands = [*arguments, "status"] if function in self.failing else arguments
        return f"{self.names[function]}({', '.join(operands)})"

    def kernel(self, lifted: tuple[bool, ...], name: str) -> str:
        function = self.root
        inputs, arguments = [], []
        for index, (type, flag) in enumerate(zip(function.parameter_types, lifted, strict=True)):
            if flag or (len(components(type)) and not isinstance(type, Tensor)):
                inputs.append(f"{self.types.pointer(_scalar(type), 'const ')} a{index}")
                arguments.append(self._load(f"a{index}", type, "i" if flag else "0"))
            else:
                inputs.append(f"{self.types.name(type)} a{index}")
                arguments.append(f"a{index}")
        outputs = [f"{self.types.pointer(_scalar(type))} y{i}" for i, type in enumerate(function.result_types)]
        before, after = [], []
        if function in self.failing:
            outputs.append(f"{self.dialect.pointer.format(type='int')} failed")
            before, after = ["    int failure = 0;", "    int* status = &failure;"], ["    failed[i] = failure;"]
        result = self.types.name(function.result_type)
        lines = [*before, f"    const {result} value = {self.call(function, arguments)};", *after]
        for index, type in enumerate(function.result_types):
            single = len(function.results) == 1
            value = "value" if single else self.types.member("value", function.result_type, index)
            lines += self._store_lines(f"y{index}", value, type)
        index_type = self.dialect.index
        head = f"{self.dialect.kernel_head} {name}(const {index_type} count, {', '.join([*inputs, *outputs])})"
        guard = f"    const {index_type} i = {self.dialect.thread};\n    if (i >= count) return;"
        return f"{head}\n{{\n{guard}\n" + "\n".join(lines) + "\n}\n"

    def _load(self, name: str, type: Type, item: str) -> str:
        element, count = _scalar(type), len(components(type))
        if not count:
            return self.dialect.load_expression(f"{name}[{item}]", element)
        lvalues = [f"{name}[{item} * {count} + {index}]" for index in range(count)]
        return self.types.make(type, [self.dialect.load_expression(lvalue, element) for lvalue in lvalues])

    def _store_lines(self, name: str, value: str, type: Type) -> list[str]:
        count = len(components(type))
        if not count:
            return [f"    {name}[i] = {value};"]
        members = (self.types.member(value, type, index) for index in range(count))
        return [f"    {name}[i * {count} + {index}] = {member};" for index, member in enumerate(members)]


def _chooses(text: str, struct: str) -> bool:
    return f"_{struct}(" in text


def _scalar(type: Type) -> Scalar:
    scalar = scalar_of(type)
    assert scalar is not None
    return scalar
