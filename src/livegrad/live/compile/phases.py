"""The output of each phase of the graph compiler as text, for `Engine.phases()`.

In: a `Compilation`. Out: one section per phase. If a phase finds problems, later sections say so.
"""

from __future__ import annotations

from collections.abc import Iterator

from livegrad.live.compile.graph_compiler import Compilation
from livegrad.live.compile.live_plan import LivePlan
from livegrad.live.compile.live_steps import AppendStep, BlockStep, CapturedStep


def describe_phases(compilation: Compilation) -> str:
    """Every phase of a compilation: the network, validation, order, shapes, buffers, wiring."""
    sections = [
        ("flatten", list(_describe_network(compilation))),
        ("validate", [str(problem) for problem in compilation.problems] or ["no problems"]),
        ("sort", list(_describe_levels(compilation))),
        ("propagate shapes", [f"{key}: {type}" for key, type in compilation.shapes.types.items()]),
    ]
    if compilation.plan is None:
        sections.append(("allocate and wire", ["not reached: there are problems"]))
    else:
        sections.append(("allocate", list(_describe_buffers(compilation.plan))))
        sections.append(("wire", str(compilation.plan).splitlines()))
        sections.append(("build", list(_describe_work(compilation.plan))))
    return "\n".join(f"{name}\n" + "\n".join(f"  {line}" for line in lines) for name, lines in sections)


def _describe_network(compilation: Compilation) -> Iterator[str]:
    for node in compilation.network.all_nodes():
        feeds = ", ".join(f"{name} ← {'nothing' if ref is None else ref.key}" for name, ref in node.feeds.items())
        yield f"{node.key}({feeds})"


def _describe_levels(compilation: Compilation) -> Iterator[str]:
    levels: dict[int, list[str]] = {}
    for key, level in compilation.order:
        levels.setdefault(level, []).append(key)
    for level in sorted(levels):
        yield f"level {level}: {', '.join(levels[level])}"
    unsorted = [key for key in compilation.network.nodes if key not in dict(compilation.order)]
    if unsorted:
        yield f"on a cycle, or behind one: {', '.join(unsorted)}"


def _describe_buffers(plan: LivePlan) -> Iterator[str]:
    """Each buffer: its type, owner, size, and the steps between which it is live."""
    for key, spec in plan.buffers.items():
        slot = f", shares memory {plan.slot_of[key]}" if key in plan.slot_of else ""
        yield f"{key}: {spec.type}, {spec.lifetime}, {spec.bytes} bytes{slot}{_describe_lifetime(plan, key)}"
    unshared = sum(
        spec.bytes for key, spec in plan.buffers.items() if key not in plan.slot_of and spec.lifetime != "external"
    )
    shared = sum(plan.slots)
    yield f"{unshared + shared} bytes in total" + (f", {shared} of them shared" if shared else "")


def _describe_lifetime(plan: LivePlan, key: str) -> str:
    writer, readers = plan.producer.get(key), plan.readers.get(key, ())
    if writer is None:
        return ""
    last = max((plan.position[reader] for reader in readers), default=None)
    until = "until it is read" if last is None else f"until {list(plan.steps)[last]}"
    return f", from {writer} {until}"


def _describe_work(plan: LivePlan) -> Iterator[str]:
    leaves = [leaf for step in plan.steps.values() for leaf in step.leaf_steps()]
    functions = {leaf.function for leaf in leaves if isinstance(leaf, BlockStep)}
    kinds = {
        "calls of functions": sum(isinstance(leaf, BlockStep) for leaf in leaves),
        "captured calls": sum(isinstance(leaf, CapturedStep) for leaf in leaves),
        "memsets": sum(isinstance(leaf, AppendStep) for leaf in leaves),
        "appends": sum(len(leaf.writers) for leaf in leaves if isinstance(leaf, AppendStep)),
    }
    yield ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count or kind == "calls of functions")
    yield f"{len(functions)} functions to compile"
