"""The pass manager of value passes: runs passes on a module, verifies the result of each, and records it on request.

`livegrad.compiler` lists the passes. In: a module. Out: the same functions in simpler ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from operator import is_
from typing import Any

from livegrad.diagnostics import VerifyError
from livegrad.ir.node import Function, Module
from livegrad.ir.op import Op
from livegrad.ir.propagate_lines import propagates_lines
from livegrad.ir.recursion import deep_recursion
from livegrad.ir.text import print_module
from livegrad.ir.verify import verify_module
from livegrad.ir.walk import ops_below


@dataclass(frozen=True)
class Pass:
    """A value pass.

    Ops that it `removes` must not exist in the output of this pass or later ones. A pass that `binds` receives the
    sizes, and its output is valid only for them.
    """

    run: Callable[..., Module]
    name: str = ""  # default: the name of `run`
    needs: frozenset[Op] = frozenset()  # has nothing to do unless the module has one of these ops; empty: it may
    removes: frozenset[Op] = frozenset()
    targets: frozenset[str] | None = None  # the devices that it runs for; None: all
    optional: bool = False  # an optimisation that `Target.without` can disable
    binds: bool = False
    keeps_signatures: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.run.__name__)


def on_functions(rewrite: Callable[..., Function]) -> Callable[..., Module]:
    """Lifts a rewrite of one function to a pass over the functions of a module."""

    @wraps(rewrite)
    def run(module: Module, *arguments: Any) -> Module:
        functions = tuple([rewrite(function, *arguments) for function in module.functions])
        unchanged = all(map(is_, functions, module.functions))
        return module if unchanged else Module(functions)

    return run


@dataclass(frozen=True)
class PassOutput:
    """The output of a pass, a module or a plan, as text. The first stage is the input."""

    name: str
    text: str


@dataclass
class PipelineTrace:
    """Records the output of each pass: `lower(function, target, trace=PipelineTrace())`."""

    stages: list[PassOutput] = field(default_factory=list)

    def __call__(self, name: str, output: object) -> None:
        self.stages.append(PassOutput(name, print_module(output) if isinstance(output, Module) else str(output)))

    def __str__(self) -> str:
        return "\n".join(f"# after {stage.name}\n{stage.text}" for stage in self.stages)


Trace = Callable[[str, Any], None]  # called with the name and the output of each pass


@deep_recursion()
@propagates_lines
def run_passes(
    module: Module, passes: Iterable[Pass], sizes: Mapping[str, int] | None = None, trace: Trace | None = None
) -> Module:
    """Runs all passes on a module. `trace` is called with the name and output of each pass."""
    verify_module(module, allow_inputs=True)
    removed: frozenset[Op] = frozenset()
    ops = _ops_of(module)
    for step in passes:
        removed |= step.removes
        if not step.needs or not step.needs.isdisjoint(ops):
            try:
                result = step.run(module, sizes or {}) if step.binds else step.run(module)
            except Exception as error:
                error.add_note(f"in pass `{step.name}`")
                raise
            if result is not module or step.removes:
                _verify_after(step, module, result, removed)
                module, ops = result, _ops_of(result)
        if trace is not None:
            trace(step.name, module)
    return module


def _ops_of(module: Module) -> frozenset[Op]:
    """The ops of the functions of a module and of all functions they use."""
    return frozenset().union(*map(ops_below, module.functions))


def _verify_after(step: Pass, before: Module, after: Module, removed: frozenset[Op]) -> None:
    if step.keeps_signatures and after is not before:
        found, expected = ([(f.name, f.parameter_types, f.result_types) for f in m.functions] for m in (after, before))
        if found != expected:
            raise VerifyError(
                f"pass `{step.name}` changed the module's functions", expected=str(expected), found=str(found)
            )
    try:
        verify_module(after, allow_inputs=True, forbidden=removed, before=None if after is before else before)
    except VerifyError as error:
        raise VerifyError(
            f"after pass `{step.name}`: {error.what}",
            where=error.where,
            expected=error.expected,
            found=error.found,
            help=error.help,
        ) from error
