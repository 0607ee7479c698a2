"""A thread that steps without a rest gives way to threads that wait for their turn between two frames."""

from __future__ import annotations

import threading

import livegrad as lg


def test_a_thread_that_steps_without_a_rest_gives_way():
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    is_over = threading.Event()

    def step() -> None:
        while not is_over.is_set():
            engine.set(block["x"], float(engine.frame.number))
            engine.step()

    thread = threading.Thread(target=step)
    thread.start()
    try:
        for _ in range(200):
            runtime = engine._runtime
            with runtime.gate:  # as `between_frames` does; from here on, at most the frame that has begun ends
                before = engine.frame.number
                with runtime.lock:
                    assert engine.frame.number - before <= 1
            with engine.between_frames(), engine.between_frames():
                number = engine.frame.number
                assert engine.peek(block) is not None or number == 0
                assert engine.frame.number == number
    finally:
        is_over.set()
        thread.join()


def test_the_thread_that_has_its_turn_may_step():
    engine = lg.Engine()
    engine.add(lg.block(lambda x=1.0: x * 2.0, name="double"))
    with engine.between_frames():
        assert engine.step().ok
        assert engine.settle().ok
