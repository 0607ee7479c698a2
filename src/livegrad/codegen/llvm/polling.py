"""How often the loops of a program poll for Ctrl-C and for failed checks: innermost ones after a strip of iterations.

Called by `masked_control.py` and `while_loops.py`.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.codegen.llvm import tapes
from livegrad.codegen.llvm.kernel_builder import KernelBuilder
from livegrad.codegen.llvm.registers import Register
from livegrad.ir.leaves import constant_op
from livegrad.ir.node import Function, Node
from livegrad.ir.types import bool_, i32, i64
from livegrad.ir.walk import nodes_of, ops_below, reachable_functions
from livegrad.ops.control import call, for_loop, while_loop

# A loop of constant length with less work than this does not poll for Ctrl-C.
_SHORT_LOOP = 10_000.0
# The work of an innermost loop between two polls. Without polls inside, LLVM can move loads and stores, and vectorise.
_STRIP_WORK = 100_000.0


def is_too_short_to_poll(builder: KernelBuilder, node: Node, iterations: int) -> bool:
    """Whether a `for_loop` with the given number of iterations ends soon enough without a poll."""
    short = _STRIP_WORK if builder.runs_once and builder.lanes == 1 else _SHORT_LOOP
    return _loop_work(node, iterations) <= short


def _loop_work(node: Node, iterations: int) -> float:
    """The approximate cost of a `for_loop` with the given number of iterations, in additions."""
    return iterations * _work(node.attribute("body"))


@lru_cache(maxsize=4096)
def _work(function: Function) -> float:
    total = 0.0
    for node in nodes_of(function):
        if node.op.name == "for_loop" and node.operands[0].op is constant_op:
            total += _loop_work(node, node.operands[0].attribute("value"))
        else:
            total += node.op.cost + sum(map(_work, node.functions))
    return total


@lru_cache(maxsize=4096)
def runs_in_strips(body: Function) -> bool:
    """Whether a loop can poll once per strip: the loops in its body are short, and poll for nothing themselves.

    Loops with tapes check for memory in each iteration.
    """
    if not ops_below(body).isdisjoint((while_loop, call)) or tapes.mentions_tapes(body):
        return False
    loops = [node for function in reachable_functions([body]) for node in nodes_of(function) if node.op is for_loop]
    return not loops or (all(map(_has_known_length, loops)) and _work(body) <= _SHORT_LOOP)


def _has_known_length(loop: Node) -> bool:
    iterations = loop.operands[0]
    return iterations.op is constant_op and type(iterations.attribute("value")) is int


def strip_length(body: Function) -> int:
    """The number of iterations between two polls for Ctrl-C."""
    return 1 << max(6, int(_STRIP_WORK / max(1.0, _work(body))).bit_length() - 1)


def poll(builder: KernelBuilder, again: Register) -> Register:
    """Restricts a loop's condition: false when the interrupt flag is set, or after a failed check.

    Code that runs after a failed check, such as the next kernel of a plan, finds arbitrary values, with which a loop
    might never end.
    """
    builder.polls = True
    flag = builder.make("load atomic i32, ptr %interrupt monotonic, align 4", i32, 1)
    status = builder.make("load atomic i64, ptr %status monotonic, align 8", i64, 1)
    runs = builder.apply("icmp eq", bool_, flag, builder.constant(0, i32))
    unset = builder.apply("icmp eq", bool_, status, builder.constant(-1, i64))
    return builder.apply("and", bool_, again, builder.apply("and", bool_, runs, unset))
