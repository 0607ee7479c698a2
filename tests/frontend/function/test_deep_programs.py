"""Programs that nest deeper than Python's recursion limit compile; too deep ones raise an error with a line."""

import sys
import threading
from collections.abc import Callable

import pytest

import livegrad as lg
from livegrad.frontend.function.function_errors import FunctionError
from livegrad.ir.recursion import MAX_CALLS, deep_recursion

DEPTH = 220


def match_cases(count: int) -> str:
    cases = "".join(f"        case {i}: return {i}.5\n" for i in range(count))
    return f"def f(k: int) -> float:\n    match k:\n{cases}    return 0.0\n"


def early_returns(count: int) -> str:
    returns = "".join(f"    if k == {i}: return {i}.5\n" for i in range(count))
    return f"def f(k: int) -> float:\n{returns}    return 0.0\n"


def elif_chain(count: int) -> str:
    branches = "".join(f"    elif k == {i}: x = {i}.5\n" for i in range(1, count))
    return f"def f(k: int) -> float:\n    if k == 0: x = 0.5\n{branches}    else: x = 0.0\n    return x\n"


def calls(count: int) -> str:
    helpers = "".join(
        f"def h{i}(x: int) -> float:\n    return {f'h{i - 1}(x) + 1.0' if i else 'x + 0.5'}\n" for i in range(count)
    )
    return f"{helpers}def f(k: int) -> float:\n    return h{count - 1}(k)\n"


def long_sum(count: int) -> str:
    return f"def f(k: float) -> float:\n    return {' + '.join(['k'] * count)}\n"


def compiled(text: str) -> Callable[..., float]:
    return lg.function(lg.run_source(text)["f"])


@pytest.mark.parametrize("program", [match_cases, early_returns, elif_chain])
def test_hundreds_of_branches_compile(program: Callable[[int], str]) -> None:
    f = compiled(program(DEPTH))
    assert [f(0), f(3), f(DEPTH - 1), f(DEPTH)] == [0.5, 3.5, DEPTH - 0.5, 0.0]


def test_hundreds_of_calls_and_operators_compile() -> None:
    assert compiled(calls(DEPTH))(3) == 3.5 + DEPTH - 1
    assert compiled(long_sum(4 * DEPTH))(2.0) == 8.0 * DEPTH


def test_too_deep_nesting_is_reported_for_the_called_function() -> None:
    with pytest.raises(FunctionError) as caught:
        compiled(calls(MAX_CALLS // 4))(3)
    assert caught.value.code == "LG112"
    assert "`f` nests too deeply" in str(caught.value)
    assert compiled(calls(3))(1) == 3.5


@pytest.mark.own_process  # compilers in the background raise the limit too
def test_the_recursion_limit_is_restored_after_the_last_thread() -> None:
    before, inside, leave = sys.getrecursionlimit(), threading.Event(), threading.Event()

    def other() -> None:
        with deep_recursion():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with deep_recursion():
        thread.start()
        inside.wait()
    assert sys.getrecursionlimit() == max(before, MAX_CALLS)
    leave.set()
    thread.join()
    assert sys.getrecursionlimit() == before


@pytest.mark.own_process
def test_a_recursion_limit_that_the_program_sets_meanwhile_is_kept() -> None:
    before = sys.getrecursionlimit()
    try:
        with deep_recursion():
            sys.setrecursionlimit(MAX_CALLS + 1)
        assert sys.getrecursionlimit() == MAX_CALLS + 1
    finally:
        sys.setrecursionlimit(before)
