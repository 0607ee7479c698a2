"""livegrad from scratch: the architecture in three hundred lines.

This program is a small version of livegrad: an interned graph, one record per operation, derivatives in both modes, a
scheduler that fuses operations, native code through LLVM, and an engine that you can edit while it runs. It does not
import livegrad. Each section says what the real implementation adds. Run it: `python examples/from_scratch.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

# --- An operation is one record -----------------------------------------------------------------------------------
# All rules of an operation are in one place: its meaning, its derivative, its machine code. Passes and backends read
# their rules from this record; none has its own list of operations. The real record (`ir/op.py`) also has a
# type rule, an expansion into simpler operations, a cost and C code.


@dataclass(frozen=True)
class Op:
    name: str
    evaluate: Callable[..., Any]  # the meaning, on NumPy values; tests compare all other rules with it
    jvp: Callable[..., Node | None] | None = None  # (node, *tangents); None: identically zero
    transpose: Callable[..., tuple[Node, ...]] | None = None  # (node, cotangent) -> one cotangent per operand
    code: str = ""  # LLVM


# --- A node is an operation applied to operands -------------------------------------------------------------------
# Nodes are interned: equal expressions are the same object. Sharing is free, equality is identity, and the engine
# below sees what an edit did *not* change. A value is a number or a row of numbers; the operation determines which.
# The real IR has scalars, vectors, structs, tensors of any rank, functions and control flow, in one table.


@dataclass(frozen=True, eq=False)
class Node:
    op: Op
    operands: tuple[Node, ...] = ()
    attribute: Any = None  # the value of a constant, the name of a leaf
    is_row: bool = False

    def __add__(self, other: Node | float) -> Node:
        return elementwise(add, self, other)

    def __mul__(self, other: Node | float) -> Node:
        return elementwise(mul, self, other)

    def __neg__(self) -> Node:
        return make(neg, self)

    def __sub__(self, other: Node | float) -> Node:
        return elementwise(add, self, -other)

    def __str__(self) -> str:
        inside = ", ".join(str(operand) for operand in self.operands)
        return str(self.attribute) if not self.operands else f"{self.op.name}({inside})"


INTERNED: dict[Any, Node] = {}


def make(op: Op, *operands: Node, attribute: Any = None, is_row: bool | None = None) -> Node:
    rows = any(operand.is_row for operand in operands) if is_row is None else is_row
    return INTERNED.setdefault((op.name, operands, attribute, rows), Node(op, operands, attribute, rows))


def elementwise(op: Op, *operands: Node | float) -> Node:
    """Applies an op. Broadcasts of numbers to rows are explicit nodes, so that they can be transposed."""
    nodes = [x if isinstance(x, Node) else constant(x) for x in operands]
    rows = any(node.is_row for node in nodes)
    return make(op, *[make(broadcast, node, is_row=True) if rows and not node.is_row else node for node in nodes])


def constant(value: float) -> Node:
    return make(CONSTANT, attribute=float(value))


def live(name: str) -> Node:
    """A number that may change at any time. It is a named leaf, so that moving a slider does not change the graph."""
    return make(LIVE, attribute=name)


def row(name: str) -> Node:
    return make(ROW, attribute=name, is_row=True)


# --- The table ----------------------------------------------------------------------------------------------------
# Every operation has a `jvp`, and linear operations have a `transpose`. Reverse mode needs no other rules.


def plus(a: Node | None, b: Node | None) -> Node | None:
    return a if b is None else b if a is None else a + b


def times(factor: Node, tangent: Node | None) -> Node | None:
    return None if tangent is None else factor * tangent


CONSTANT = Op("constant", lambda: None)
LIVE = Op("live", lambda: None)
ROW = Op("row", lambda: None)
add = Op("add", np.add, lambda y, da, db: plus(da, db), lambda y, ct: (ct, ct), "fadd double {0}, {1}")
mul = Op(
    "mul",
    np.multiply,
    lambda y, da, db: plus(times(y.operands[1], da), times(y.operands[0], db)),
    lambda y, ct: (ct * y.operands[1], ct * y.operands[0]),
    "fmul double {0}, {1}",
)
neg = Op("neg", np.negative, lambda y, dx: -dx, lambda y, ct: (-ct,), "fneg double {0}")
sin = Op("sin", np.sin, lambda y, dx: make(cos, y.operands[0]) * dx, code="call double @llvm.sin.f64(double {0})")
cos = Op("cos", np.cos, lambda y, dx: -make(sin, y.operands[0]) * dx, code="call double @llvm.cos.f64(double {0})")
exp = Op("exp", np.exp, lambda y, dx: y * dx, code="call double @llvm.exp.f64(double {0})")
total = Op(
    "total", np.sum, lambda y, dx: make(total, dx, is_row=False), lambda y, ct: (make(broadcast, ct, is_row=True),)
)
broadcast = Op("broadcast", lambda x: x, lambda y, dx: make(broadcast, dx, is_row=True), lambda y, ct: (sum_of(ct),))


def sum_of(x: Node) -> Node:
    return make(total, x, is_row=False)


# --- Traversal and the reference backend --------------------------------------------------------------------------
# The reference backend evaluates node by node with NumPy. It is slow and simple, and tests compare everything with it.


def sorted_nodes(*roots: Node) -> list[Node]:
    """Topological order. Iterative, because graphs are deeper than Python's stack."""
    done: dict[Node, None] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        missing = [operand for operand in node.operands if operand not in done]
        stack.extend(missing)
        if not missing:
            done[stack.pop()] = None
    return list(done)


def evaluate(root: Node, leaves: Mapping[str, Any]) -> Any:
    values: dict[Node, Any] = {}
    for node in sorted_nodes(root):
        if node.op is CONSTANT:
            values[node] = node.attribute
        elif not node.operands:
            values[node] = leaves[node.attribute]
        else:
            values[node] = node.op.evaluate(*[values[operand] for operand in node.operands])
    return values[root]


# --- A pass is a function from graphs to graphs -------------------------------------------------------------------
# This pass rewrites bottom-up and has two rules. Because nodes are interned, unchanged parts stay the same objects. The
# real compiler has a list of passes (`VALUE_PASSES` in `compiler.py`) and verifies the graph after each.


def constant_value(node: Node) -> float | None:
    source = node.operands[0] if node.op is broadcast else node
    return source.attribute if source.op is CONSTANT else None


def simplify(root: Node) -> Node:
    new: dict[Node, Node] = {}
    for node in sorted_nodes(root):
        operands = tuple(new[operand] for operand in node.operands)
        numbers = [constant_value(operand) for operand in operands]
        if node.op is mul and 1.0 in numbers:
            new[node] = operands[1 - numbers.index(1.0)]
        elif node.op is neg and operands[0].op is neg:
            new[node] = operands[0].operands[0]
        elif node.operands:
            new[node] = make(node.op, *operands, is_row=node.is_row)
        else:
            new[node] = node
    return new[root]


# --- Derivatives --------------------------------------------------------------------------------------------------
# Forward mode propagates tangents. Reverse mode is derived from it: with a placeholder for each tangent, the result of
# forward mode is *linear* in the placeholders. Transposing this linear program gives all gradients at once. The two
# modes cannot disagree, and an operation without a rule raises an error instead of returning zero.


def push_forward(root: Node, tangents: Mapping[Node, Node]) -> Node | None:
    pushed: dict[Node, Node | None] = dict(tangents)
    for node in sorted_nodes(root):
        operand_tangents = [pushed[operand] for operand in node.operands]
        if any(tangent is not None for tangent in operand_tangents):
            if node.op.jvp is None:
                raise NotImplementedError(f"`{node.op.name}` has no derivative rule")
            pushed[node] = node.op.jvp(node, *operand_tangents)
        else:
            pushed.setdefault(node, None)
    return pushed[root]


def gradients(root: Node, by: Iterable[Node]) -> list[Node]:
    """Returns the derivative of a number with respect to each node of `by`: linearise, then transpose."""
    placeholders = {
        x: make(ROW if x.is_row else LIVE, attribute=f"tangent of {x.attribute}", is_row=x.is_row) for x in by
    }
    linear = push_forward(root, placeholders)
    if linear is None:
        return [constant(0.0) for _ in placeholders]
    depends = set(placeholders.values())
    cotangents: dict[Node, Node] = {linear: constant(1.0)}
    order = sorted_nodes(linear)
    for node in order:
        if depends.intersection(node.operands):
            depends.add(node)
    for node in reversed(order):
        if node not in depends or node not in cotangents or not node.operands:
            continue
        if node.op.transpose is None:
            raise NotImplementedError(f"`{node.op.name}` is not linear")
        for operand, cotangent in zip(node.operands, node.op.transpose(node, cotangents[node]), strict=True):
            if operand in depends:
                partial = cotangents.get(operand)
                cotangents[operand] = cotangent if partial is None else partial + cotangent
    return [simplify(cotangents.get(placeholder, constant(0.0))) for placeholder in placeholders.values()]


# --- The schedule: fusing nodes into kernels ----------------------------------------------------------------------
# Materialisation points are nodes that are written to memory: results, and sums, which can be read only when complete.
# All other nodes are fused into the kernels that use them and computed in registers. Materialisation points share a
# loop if they do not depend on each other and depend on the same leaves: they become stale together, so a step never
# recomputes more than necessary.
# In the real compiler (`compiler.py`) each of these decisions is a plan pass: materialise, fuse, order for memory,
# build steps, allocate. It fuses over any iteration space, and splits long sums the same way for any thread count.


@dataclass(frozen=True)
class Step:
    """One kernel: a loop over rows (or no loop), with the nodes it reads and writes."""

    reads: tuple[Node, ...]
    writes: tuple[Node, ...]
    loops: bool
    code: str


def schedule(results: Iterable[Node]) -> list[Step]:
    order = sorted_nodes(*results)
    materialised = [node for node in order if node.op is total or (node in set(results) and node.operands)]
    depth: dict[Node, int] = {}
    leaves: dict[Node, frozenset[Node]] = {}
    groups: dict[tuple[int, bool, frozenset[Node]], list[Node]] = {}
    for node in order:
        depth[node] = max((depth[operand] for operand in node.operands), default=0) + (node in materialised)
        leaf = {node} if node.op in (LIVE, ROW) else set()
        leaves[node] = frozenset(leaf).union(*[leaves[operand] for operand in node.operands])
        if node in materialised:
            groups.setdefault((depth[node], node.is_row or node.op is total, leaves[node]), []).append(node)
    return [
        make_step(group, set(materialised), key[1])
        for key, group in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def make_step(writes: list[Node], materialised: set[Node], loops: bool) -> Step:
    reads: dict[Node, None] = {}
    body: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in body or node in reads:
            return
        if node.op is not CONSTANT and (not node.operands or (node in materialised and node not in writes)):
            reads[node] = None
            return
        for operand in node.operands:
            visit(operand)
        body[node] = None

    for node in writes:
        visit(node)
    return Step(tuple(reads), tuple(writes), loops, kernel_ir(list(reads), list(body), writes))


# --- Kernels as LLVM IR -------------------------------------------------------------------------------------------
# One instruction per node. The code contains no names of leaves, so expressions of equal structure share a kernel.
# The real CPU backend emits explicit vectors with lane masks, has its own math functions, and uses all cores.


def kernel_ir(reads: list[Node], body: list[Node], writes: list[Node]) -> str:
    value = {node: f"%in{k}" for k, node in enumerate(reads)}
    start, loop, done = [], [], []
    for k in range(len(reads) + len(writes)):
        start += [f"%slot{k} = getelementptr ptr, ptr %buffers, i64 {k}", f"%p{k} = load ptr, ptr %slot{k}"]
    for k, node in enumerate(reads):
        if node.is_row:
            loop += [f"%at{k} = getelementptr double, ptr %p{k}, i64 %i", f"%in{k} = load double, ptr %at{k}"]
        else:
            start.append(f"%in{k} = load double, ptr %p{k}")
    sums = [node for node in writes if node.op is total]
    for k, node in enumerate(body):
        if node.op is CONSTANT:
            value[node] = f"0x{np.float64(node.attribute).view(np.uint64):016X}"
        elif node.op is broadcast:
            value[node] = value[node.operands[0]]
        elif node.op is total:
            loop.append(f"%sum{sums.index(node)} = fadd double %part{sums.index(node)}, {value[node.operands[0]]}")
        else:
            value[node] = f"%v{k}"
            loop.append(f"%v{k} = " + node.op.code.format(*[value[operand] for operand in node.operands]))
    for k, node in enumerate(writes, len(reads)):
        if node.op is total:
            done.append(f"store double %sum{sums.index(node)}, ptr %p{k}")
        else:
            loop += [f"%at{k} = getelementptr double, ptr %p{k}, i64 %i", f"store double {value[node]}, ptr %at{k}"]
    phis = [f"%part{k} = phi double [0.0, %start], [%sum{k}, %loop]" for k in range(len(sums))]
    return "\n".join([
        *[f"declare double @llvm.{name}.f64(double)" for name in ("sin", "cos", "exp")],
        "define void @kernel(i64 %count, ptr %buffers) {", "start:", *start, "br label %loop",
        "loop:", "%i = phi i64 [0, %start], [%next, %loop]", *phis, *loop, "%next = add i64 %i, 1",
        "%more = icmp slt i64 %next, %count", "br i1 %more, label %loop, label %done", "done:", *done, "ret void", "}",
    ])  # fmt: skip


llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
KERNELS: dict[str, tuple[Any, Any]] = {}


def compile_kernel(ir: str) -> Any:
    if ir not in KERNELS:
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
        compiled = llvm.create_mcjit_compiler(llvm.parse_assembly(ir), machine)
        compiled.finalize_object()
        call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(compiled.get_function_address("kernel"))
        KERNELS[ir] = call, compiled  # the compiler owns the code, so it is kept alive
    return KERNELS[ir][0]


# --- The live engine ----------------------------------------------------------------------------------------------
# The engine compares the running plan with the new plan, so there are no dirty flags. Each step is updated at the
# cheapest correct level, and runs only if the version of a value that it reads has changed. The real engine also has
# states, regions, memory reuse, CUDA Graphs and explanations.


class Engine:
    def __init__(self, **leaves: Any) -> None:
        self.leaves: dict[str, np.ndarray] = {}
        self.results: dict[str, Node] = {}
        self.running: dict[str, Step] = {}  # by the names of the results
        self.values: dict[Node, np.ndarray] = {}
        self.versions: dict[Any, int] = {}
        self.versions_read: dict[Step, tuple[int, ...]] = {}
        self.set(**leaves)

    def set(self, **leaves: Any) -> None:
        for name, value in leaves.items():
            self.leaves[name] = np.array(value, dtype=np.float64)
            self.versions[name] = self.versions.get(name, 0) + 1

    def want(self, **results: Node) -> None:
        self.results |= results

    def step(self) -> dict[str, str]:
        """Updates all results; returns the update level of each step."""
        names = {node: name for name, node in self.results.items()}
        steps = schedule(list(names))
        steps_by_name = {"+".join(names.get(node, f"sum{k}") for node in s.writes): s for k, s in enumerate(steps)}
        levels = {name: self.update(name, step) for name, step in steps_by_name.items()}
        self.running = steps_by_name
        return levels

    def update(self, name: str, step: Step) -> str:
        old = self.running.get(name)
        versions = tuple(self.versions[node.attribute if not node.operands else node] for node in step.reads)
        if self.versions_read.get(step) == versions:
            return "none"
        self.run(step)
        self.versions_read[step] = versions
        if old is None:
            return "cold"
        return "code" if old.code != step.code else "hot" if old.reads == step.reads else "warm"

    def run(self, step: Step) -> None:
        count = max((len(self.value(node)) for node in step.reads if node.is_row), default=1) if step.loops else 1
        for node in step.writes:
            self.values[node] = np.empty(count if node.is_row else ())
            self.versions[node] = self.versions.get(node, 0) + 1
        buffers = [self.value(node).ctypes.data for node in (*step.reads, *step.writes)]
        compile_kernel(step.code)(count, (ctypes.c_void_p * len(buffers))(*buffers))

    def value(self, node: Node) -> np.ndarray:
        if node.op is CONSTANT:
            return np.array(node.attribute)
        return self.leaves[node.attribute] if not node.operands else self.values[node]

    def read(self, name: str) -> Any:
        return self.value(self.results[name])


# --- Putting it together ------------------------------------------------------------------------------------------
# This program fits a curve while the engine runs. Changing a number is `hot`: nothing is compiled. Editing the model is
# `code` for the steps whose expression changed and `none` for the others, whose nodes are the same objects as before.


def main() -> None:
    x = np.linspace(0.0, 3.0, 200)
    engine = Engine(x=x, y=2.0 * np.sin(1.5 * x), height=1.0, rate=1.0)
    height, rate = live("height"), live("rate")

    def describe(model: Node) -> None:
        error = model - row("y")
        loss = sum_of(error * error)
        by_height, by_rate = gradients(loss, (height, rate))
        engine.want(loss=loss, by_height=by_height, by_rate=by_rate, energy=sum_of(row("y") * row("y")))

    describe(height * make(sin, rate * row("x")))
    levels = engine.step()
    print("first frame  ", levels)
    for _ in range(300):
        engine.set(
            height=engine.leaves["height"] - 3e-4 * engine.read("by_height"),
            rate=engine.leaves["rate"] - 3e-4 * engine.read("by_rate"),
        )
        levels = engine.step()
    print("fitting      ", levels)
    height_value, rate_value = engine.leaves["height"], engine.leaves["rate"]
    print(f"result: height {height_value:.4f}, rate {rate_value:.4f}, loss {engine.read('loss'):.1e}")
    print("no change    ", engine.step())
    describe(height * make(sin, rate * row("x")) * make(exp, -row("x")))
    print("new model    ", engine.step())
    print(f"{len(KERNELS)} kernels compiled")


if __name__ == "__main__":
    main()
