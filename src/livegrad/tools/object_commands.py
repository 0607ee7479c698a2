"""The commands `graph`, `passes` and `explain`, which inspect graphs and functions.

In: parsed arguments, which name a part file or an object in a Python program. Out: a report.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from livegrad.codegen.cuda.cuda_target import CUDA
from livegrad.compiler import compile_plan, lower
from livegrad.contexts.context_program import Program
from livegrad.diagnostics import UsageError
from livegrad.frontend.differentiable.differentiable_function import DifferentiableFunction
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.implicit.nodes.node_graph import AnyFunction, GraphFunction
from livegrad.ir.node import Function
from livegrad.ir.text import print_function, summarize
from livegrad.live.engine import Engine
from livegrad.live.graph.drawing import draw_blocks
from livegrad.live.graph.edges import Edge
from livegrad.passes.bind_sizes import has_symbols
from livegrad.passes.pipeline import PassOutput, PipelineTrace
from livegrad.runtime.atomic_files import write_atomically
from livegrad.runtime.cpu import compile_function
from livegrad.runtime.cpu.cpu_target import CPU
from livegrad.runtime.cpu.native.host_target import host_target
from livegrad.schedule.plan import Plan
from livegrad.schedule.target import Target
from livegrad.tensors.handle import Tensor
from livegrad.tools.argument_values import is_object
from livegrad.tools.describe_loop_passes import describe_loops, trace_loops
from livegrad.tools.graph_text import function_dot, graph_dot, graph_text
from livegrad.tools.objects import function_of, open_object, parse_types
from livegrad.tools.part_files import PartChoice, function_name, open_assembly, open_part
from livegrad.tools.passes_page import passes_html
from livegrad.tools.report import CommandError, Report, require_folder


def _write_or_print(text: str, output: Path | None, description: str) -> Report:
    """A report that contains the text, or writes the text to a file and describes it."""
    if output is None:
        return Report({}, text.rstrip("\n").splitlines())
    require_folder(output)
    write_atomically(output, (text.rstrip("\n") + "\n").encode())
    return Report({"output": str(output)}, [f"{output}: {description}"])


# --- graph ------------------------------------------------------------------------------------------------------------


def show_graph(arguments: argparse.Namespace) -> Report:
    """Shows a graph as text, DOT or SVG."""
    kind = arguments.format or _format_of(arguments.output)
    if is_object(arguments.what):
        value = open_object(arguments.what)
        return _write_or_print(
            _object_graph(value, kind, arguments), arguments.output, f"the graph of {arguments.what}"
        )
    assembly = open_assembly(Path(arguments.what))
    functions = _choose_functions(assembly, arguments.function)
    return _write_or_print(_assembly_graph(assembly, functions, kind), arguments.output, f"{len(functions)} functions")


def _format_of(output: Path | None) -> str:
    formats = {"": "text", ".txt": "text", ".dot": "dot", ".gv": "dot", ".svg": "svg"}
    suffix = "" if output is None else output.suffix.lower()
    if suffix not in formats:
        raise CommandError(
            f"a graph cannot be written as `{suffix}`", help="use the suffix .txt, .dot or .svg, or pass --format"
        )
    return formats[suffix]


def _choose_functions(assembly: Assembly, name: str | None) -> list[AnyFunction]:
    if name is None:
        return list(assembly.functions.values())
    return [assembly.function(function_name(assembly, name))]


def _assembly_graph(assembly: Assembly, functions: list[AnyFunction], kind: str) -> str:
    if kind == "dot":
        return graph_dot(assembly, functions)
    if kind == "text":
        return graph_text(assembly, functions)
    drawable = [function for function in functions if isinstance(function, GraphFunction)]
    if len(drawable) != 1:
        names = ", ".join(function.name or str(function.id) for function in drawable)
        raise UsageError("a picture shows one function", help=f"choose it with --function: {names or 'there is none'}")
    return drawable[0].to_svg()


def _object_graph(value: Any, kind: str, arguments: argparse.Namespace) -> str:
    match value:
        case Assembly():
            return _assembly_graph(value, _choose_functions(value, arguments.function), kind)
        case Engine():
            return _engine_graph(value, kind)
        case Program():
            return value.to_dot() if kind == "dot" else value.to_svg() if kind == "svg" else str(value)
        case Tensor():
            graph = value.graph
            return graph.to_dot() if kind == "dot" else graph.to_svg() if kind == "svg" else str(graph)
    function = function_of(value, parse_types(arguments.types))
    return function_dot(function) if kind == "dot" else function.to_svg() if kind == "svg" else print_function(function)


def _engine_graph(engine: Engine, kind: str) -> str:
    if kind == "svg":
        return draw_blocks(engine.graph)
    edges = [(str(s.source), str(pin)) for pin, s in engine.graph.sources.items() if isinstance(s, Edge)]
    if kind == "text":
        blocks = [repr(block).strip("<>") for block in engine.graph.blocks.values()]
        return "\n".join([*blocks, *(f"{source} → {target}" for source, target in edges)])
    lines = [f'  "{name}";' for name in engine.graph.blocks]
    lines += [f'  "{a.split(".")[0]}" -> "{b.split(".")[0]}" [label="{b.split(".")[1]}"];' for a, b in edges]
    return "\n".join(["digraph engine {", "  node [shape=box];", *lines, "}"])


# --- passes -----------------------------------------------------------------------------------------------------------


_TARGETS = {"cpu": CPU, "cuda": CUDA}


def show_passes(arguments: argparse.Namespace) -> Report:
    """Shows the program after every compiler pass: the function, then the plan, then the loop nests of its kernels."""
    function = _open_function(arguments)
    stages = _stages(function, _TARGETS[arguments.target], dict(arguments.size))
    if arguments.only is not None:
        names = ", ".join(stage.name for stage in stages)
        stages = [stage for stage in stages if stage.name == arguments.only]
        if not stages:
            raise CommandError(f"there is no pass `{arguments.only}`", expected=f"one of {names}")
    facts = {"function": function.name, "stages": [{"name": stage.name, "text": stage.text} for stage in stages]}
    if arguments.output is not None and arguments.output.suffix.lower() in (".html", ".htm"):
        report = _write_or_print(passes_html(function.name, stages), arguments.output, f"{len(stages)} stages")
        return Report({**facts, **report.facts}, report.lines)
    text = "\n\n".join(f"# {'input' if s.name == 'input' else f'after {s.name}'}\n{s.text.rstrip()}" for s in stages)
    report = _write_or_print(text, arguments.output, f"{len(stages)} stages")
    return Report({**facts, **report.facts}, report.lines)


def _stages(function: Function, target: Target, sizes: dict[str, int]) -> list[PassOutput]:
    """The program after each pass. If sizes are symbolic, only the passes that are valid for all sizes run."""
    pipeline = PipelineTrace()
    if sizes or not any(map(has_symbols, function.parameter_types)):
        plan = compile_plan(function, target, sizes, pipeline)
        trace_loops(plan, target, host_target().vector_bytes, pipeline)
    else:
        lower(function, target, pipeline)
    return pipeline.stages


def _open_function(arguments: argparse.Namespace) -> Function:
    if is_object(arguments.what):
        return function_of(open_object(arguments.what), parse_types(arguments.types))
    return open_part(Path(arguments.what), PartChoice(part=arguments.part)).function


# --- explain ----------------------------------------------------------------------------------------------------------


def explain(arguments: argparse.Namespace) -> Report:
    """Explains how an object runs: the frame of an engine, the needs of a context program, the plan of a function."""
    value = open_object(arguments.what) if is_object(arguments.what) else None
    match value:
        case Engine():
            frame = value.frame if value.frame.number else value.step()
            problems = list(map(str, frame.problems))
            facts = {"level": frame.level.name.lower(), "ran": list(frame.ran), "problems": problems}
            return Report(facts, value.explain().splitlines(), failed=not frame.ok)
        case Program():
            needs = {unit.name: list(map(str, unit.need)) for unit in value.linked.units}
            return Report({"needs": needs}, [*str(value).splitlines(), "", *str(value.report()).splitlines()])
        case Tensor():
            plan = value.graph.plan()
            facts = {"computed": value.is_computed, **_plan_facts(plan)}
            return Report(facts, [*str(value.graph).splitlines(), "", *str(plan).splitlines()])
    return _explain_function(_open_function(arguments), value, arguments)


def _explain_function(function: Function, value: Any, arguments: argparse.Namespace) -> Report:
    compiled = compile_function(function)
    plan = compiled.schedule(dict(arguments.size))
    loops = describe_loops(plan, CPU, host_target().vector_bytes)
    lines = [*summarize(function).splitlines(), "", *str(plan).splitlines(), *loops]
    facts = {"function": function.name, **_plan_facts(plan), "loops": loops}
    if isinstance(value, DifferentiableFunction):
        residuals = value.remembered(*parse_types(arguments.types))
        facts["remembered_bytes"] = residuals.bytes if isinstance(residuals.bytes, int) else str(residuals.bytes)
        lines += ["", *str(residuals).splitlines()]
    return Report(facts, lines)


def _plan_facts(plan: Plan) -> dict[str, Any]:
    return {
        "steps": len(plan.steps),
        "kernels": plan.kernels,
        "bytes_moved": plan.bytes_moved,
        "peak_bytes": plan.arena_bytes,
    }
