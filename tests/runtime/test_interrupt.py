"""Ctrl-C ends native loops that would not end, and the process continues."""

import signal
from pathlib import Path

import pytest

from tests.runtime.subprocesses import read_line, start_python

LOOPS = {
    "a while loop over an array": """
        body = lambda x: ops.make_while_loop(lambda v: v > 0.0, lambda i, v: ops.sqrt(v), x)[0]
        run = lg.ir.compile(lg.ir.map_over(lg.ir.trace(body, lg.f32)))
        endless, short = (np.full(100_003, 2.0, np.float32),), (np.full(100_003, -2.0, np.float32),)
    """,
    "a while loop on a scalar": """
        body = lambda x: ops.make_while_loop(lambda v: v > 0.0, lambda i, v: ops.sqrt(v), x)[0]
        run = lg.ir.compile(lg.ir.trace(body, lg.f32))
        endless, short = (2.0,), (-2.0,)
    """,
    "a for loop with very many iterations": """
        loop = lg.ir.trace(lambda n, x: ops.make_for_loop(n, lambda i, v: ops.sin(v), x)[0], lg.i64, lg.f32)
        run = lg.ir.compile(loop)
        endless, short = (10**17, 1.0), (0, -2.0)
    """,
    "a for loop with a constant number of iterations": """
        def nest(depth, x):
            inner = lambda i, v: nest(depth - 1, v)
            return ops.sin(x) if depth == 0 else ops.make_for_loop(lg.ir.constant(1000, lg.i64), inner, x)[0]
        body = lambda x: ops.make_cond(x > 0.0, lambda v: nest(5, v), lambda v: v, x)
        run = lg.ir.compile(lg.ir.map_over(lg.ir.trace(body, lg.f32)))
        endless, short = (np.full(100, 2.0, np.float32),), (np.full(100, -2.0, np.float32),)
    """,
    "a while loop over whole tensors": """
        from livegrad.ir.types import Tensor
        test = lambda v: ops.lookup(ops.reduce(v, kind="max", axes=(0,))) > 0.0
        body = lambda x: ops.make_while_loop(test, lambda i, v: ops.sqrt(v), x)[0]
        run = lg.ir.compile(lg.ir.trace(body, Tensor(lg.f32, (5,))))
        endless, short = (np.full(5, 2.0, np.float32),), (np.full(5, -2.0, np.float32),)
    """,
}

PROGRAM = """
assert np.all(run(*short) == -2.0)
print("ready", flush=True)
try:
    run(*endless)
    print("ended by itself", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert np.all(run(*short) == -2.0)
other = lg.ir.compile(lg.ir.trace(lambda x: ops.reduce(x * x, kind="sum", axes=(0,)), lg.ir.types.Tensor(lg.f64, (4,))))
print(float(other(np.arange(4.0))), flush=True)
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_ends_the_loop_and_the_process_continues(loop: str, tmp_path: Path) -> None:
    lines = LOOPS[loop].splitlines()
    program = "\n".join(line[8:] for line in lines) + PROGRAM
    process = start_python(program, tmp_path)
    try:
        assert read_line(process.stdout) == "ready", process.communicate()[1]
        with pytest.raises(Exception, match="timed out"):
            process.wait(0.1)
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert printed.split("\n")[:2] == ["interrupted", "14.0"], errors
    assert process.returncode == 0


def test_ctrl_c_reaches_a_loop_that_another_thread_runs(tmp_path: Path) -> None:
    program = """
        body = lambda x: ops.make_while_loop(lambda v: v > 0.0, lambda i, v: ops.sqrt(v), x)[0]
        run = lg.ir.compile(lg.ir.trace(body, lg.f32))
        main = lg.ir.compile(lg.ir.map_over(lg.ir.trace(body, lg.f32)))
        # Both are compiled before the signal: it must find the main thread in native code, not in the compiler.
        run(-1.0)
        main(np.full(10, -1.0, np.float32))
        seen = []
        threading.excepthook = lambda info: seen.append(f"thread: {info.exc_type.__name__}")
        thread = threading.Thread(target=run, args=(2.0,))
        thread.start()
        print("ready", flush=True)
        try:
            main(np.full(10, 2.0, np.float32))
        except KeyboardInterrupt:
            seen.append("main: KeyboardInterrupt")
        thread.join()
        print(*sorted(seen), float(run(-3.0)), sep=", ")
    """
    process = start_python(program, tmp_path)
    try:
        assert read_line(process.stdout) == "ready", process.communicate()[1]
        with pytest.raises(Exception, match="timed out"):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert printed.strip() == "main: KeyboardInterrupt, thread: KeyboardInterrupt, -3.0", errors
