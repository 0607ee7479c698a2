"""Invalid blocks, NaN results, and bound memory that changes: each error is reported where it belongs."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import livegrad as lg
from tests.runtime.cuda.simulate import simulated


def test_a_reading_raises_the_error_of_its_own_step(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    chains = []
    for name in "ab":
        pick = engine.add(lg.block(lambda x, i: lg.take(x, i, axis=0), name=f"pick_{name}"))
        after = engine.add(lg.block(lambda x: x + 1.0, name=f"after_{name}"))
        engine.set(pick["x"], np.arange(3.0))
        engine.set(pick["i"], np.array([7]))
        engine.connect(pick, after["x"])
        chains.append((pick, after))
    engine.step()
    errors = []
    for pick, after in chains:
        with pytest.raises(lg.KernelCheckError) as own:
            engine.read(pick)
        with pytest.raises(lg.KernelCheckError) as waiting:
            engine.read(after)
        assert waiting.value is own.value
        errors.append(own.value)
    assert errors[0] is not errors[1]


def test_a_step_that_need_not_run_can_be_read_although_another_fails(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    pick = engine.add(lg.block(lambda x, i: lg.take(x, i, axis=0), name="pick"))
    engine.set(pick["x"], np.arange(3.0))
    engine.set(pick["i"], np.array([1]))
    sign = engine.add(lg.block(lambda x=3.0: lg.sign(x), name="sign"))
    after = engine.add(lg.block(lambda x: x * 2.0, name="after"))
    engine.connect(sign, after["x"])
    engine.step()
    engine.set(sign["x"], 5.0)  # unchanged
    engine.set(pick["i"], np.array([7]))
    assert engine.step().failed == {"pick"}
    assert float(engine.read(after)) == 2.0


def test_a_dict_that_lacks_a_result_lists_the_expected_names(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    engine.add(lg.block(lambda x=1.0: {"a": x}, name="half", outputs=("a", "b")))
    (problem,) = engine.step().problems
    assert problem.node == "half"
    assert "expected a, b" in str(problem)
    assert "found a" in str(problem)


def test_a_function_without_a_signature_is_rejected_when_the_block_is_created() -> None:
    with pytest.raises(lg.UsageError, match="parameters") as error:
        lg.block(max)
    assert "test_misuse.py" in str(error.value)


def test_functions_of_the_library_are_blocks(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    sine = engine.add(lg.block(lg.sin))
    larger = engine.add(lg.block(lg.maximum, name="larger"))
    x = np.linspace(0.0, 1.0, 4)
    engine.set(sine["x"], x)
    first, second = larger.inputs.values()
    engine.connect(sine, first)
    engine.set(second, np.full(4, 0.5))
    assert engine.step().ok
    np.testing.assert_allclose(engine.read(larger), np.maximum(np.sin(x), 0.5), rtol=1e-12)


def test_options_of_library_functions_and_arguments_of_partial_are_not_pins(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    x = np.array([[1.0, 2.0], [3.0, 5.0]])
    scaled = partial(lambda x, mode, k=2.0, *, by=3.0: x * k * by if mode == "scale" else x, mode="scale")
    functions = {
        lg.sum: (["x"], x.sum()),
        partial(lg.sum, axis=0): (["x"], x.sum(0)),
        lg.softmax: (["x"], np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        partial(lg.clip, min=2.0, max=4.0): (["x"], x.clip(2.0, 4.0)),
        lg.normalize: (["v"], x / np.linalg.norm(x, axis=-1, keepdims=True)),
        scaled: (["x", "k", "by"], x * 6.0),
        partial(lambda a, b: a - b, 10.0): (["b"], 10.0 - x),
    }
    blocks = [engine.add(lg.block(function, name=f"b{index}")) for index, function in enumerate(functions)]
    for block, (pins, _) in zip(blocks, functions.values(), strict=True):
        assert list(block.inputs) == pins
        engine.set(block[pins[0]], x)
    assert engine.step().ok, engine.frame.problems
    for block, (_, expected) in zip(blocks, functions.values(), strict=True):
        np.testing.assert_allclose(engine.read(block), expected, rtol=1e-12)


def test_reading_or_keeping_an_input_explains_that_it_is_an_input() -> None:
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x: x, name="b"))
    same = engine.add(lg.While("w", body_of_loop(), carried={"x": "half"}))
    engine.set(block["x"], 1.0), engine.set(same["x"], 1.0), engine.set(same["condition"], 1)
    for _ in range(2):  # before and after the first frame
        for use in (engine.read, engine.read_async, engine.keep):
            with pytest.raises(lg.UsageError, match=r'`b\.x` is an input .*: expected an output: block\["result"\]'):
                use(block["x"])
            with pytest.raises(lg.UsageError, match=r'`w\.condition` is an input .*: block\["half"\]'):
                use(same["condition"])
        assert engine.step().ok


def body_of_loop() -> lg.Composite:
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: (x * 0.5, x > 2.0), name="inner", outputs=("half", "condition")))
    for pin in (inner["x"], inner["half"], inner["condition"]):
        body.expose(pin)
    return body


def test_one_output_may_be_named_by_itself() -> None:
    assert list(lg.block(lambda x: x, outputs="total").outputs) == ["total"]
    function = lg.ir.trace(lambda x: x * 2.0, lg.f32)
    assert list(lg.block(function, inputs="amount", outputs="total").inputs) == ["amount"]
    assert list(lg.live.AppendBuffer("both", capacity=4, writers="small").inputs) == ["small"]


DOUBLE = lambda x=1.0: x * 2.0  # noqa: E731
anything: Any = lg  # calls that type checkers also reject
WRONG_KINDS = {
    "set a tensor": (lambda e, b: e.set(lg.ones(3), 2.0), 'expected a pin: block["name"], found Tensor'),
    "set an array": (lambda e, b: e.set(np.ones(3), 2.0), 'expected a pin: block["name"], found ndarray'),
    "set a block": (lambda e, b: e.set(b, 2.0), 'expected a pin: block["name"] with one of x'),
    "connect numbers": (lambda e, b: e.connect(3, 4), 'neither a pin nor a block.*found int.*block["name"] is a pin'),
    "connect to a number": (lambda e, b: e.connect(b, 4), 'expected a pin: block["name"], found int'),
    "edit with a function": (
        lambda e, b: e.edit(b, DOUBLE),
        "not a body.*found function; .*lg.live.edit(engine, block",
    ),
    "edit with nothing": (lambda e, b: e.graph.edit(b, None), "not a body.*found NoneType"),
    "follow a path": (lambda e, b: e.follow("a.py"), "not a watch.*found str; lg.live.watch"),
    "observe a number": (lambda e, b: e.observe(3), "expected a function that creates an observer"),
    "read running": (lambda e, b: e.read(b, running="yes"), "`running` must be True or False.*found 'yes'"),
    "source of a list": (lambda e, b: e.graph.source_of([b]), 'expected a pin: block["name"], found list'),
    "expose a number": (
        lambda e, b: anything.Composite("c").expose(b["x"], 3),
        "the name of a pin must be a string.*found int",
    ),
    "an engine on a list": (
        lambda e, b: anything.Engine(["cpu"]),
        "not a backend.*expected one of cpu, cuda, found ['cpu']",
    ),
    "no truth value": (
        lambda e, b: anything.Engine(reuse_memory="no"),
        "`reuse_memory` must be True or False.*found 'no'",
    ),
    "outputs by number": (lambda e, b: anything.block(DOUBLE, outputs=3), "names of outputs must be strings.*found 3"),
    "other inputs": (lambda e, b: anything.block(DOUBLE, inputs="y"), "the inputs of.*expected x, found y"),
    "types of no input": (
        lambda e, b: anything.block(DOUBLE, inputs={"y": lg.f32}),
        "the inputs of.*expected x, found y",
    ),
    "no type": (
        lambda e, b: anything.block(DOUBLE, inputs={"x": 3}),
        "invalid type for `x`.*expected a type such as lg.f32",
    ),
    "a rule of nothing": (
        lambda e, b: anything.block(DOUBLE, shapes={"a": "same(0)"}),
        "no output `a`.*expected one of result",
    ),
    "a rule by number": (
        lambda e, b: anything.block(DOUBLE, shapes={"result": 3}),
        "the rule of output `result` must be a string",
    ),
    "rules by text": (lambda e, b: anything.block(DOUBLE, shapes="same(0)"), "expected a dict, found str"),
    "a loop around a block": (
        lambda e, b: anything.While("w", b, {}),
        "the bodies of `w` must be composites.*found Block",
    ),
    "a switch of nothing": (lambda e, b: anything.Switch("s"), "`s` has no body"),
    "carries a text": (
        lambda e, b: anything.For("f", anything.Composite("c"), "x"),
        "the carried values of `f` must be a mapping.*carried={",
    ),
    "record a block": (lambda e, b: anything.live.record(b, "a.jsonl"), "`record` takes an engine first.*found Block"),
}


@pytest.mark.parametrize("kind", WRONG_KINDS)
def test_an_argument_of_the_wrong_kind_is_rejected_with_the_expected_kind(kind: str) -> None:
    call, said = WRONG_KINDS[kind]
    engine = lg.Engine()
    double = engine.add(lg.block(DOUBLE, name="double"))
    pattern = ".*".join(map(re.escape, said.split(".*")))
    with pytest.raises(lg.UsageError, match=pattern) as caught:
        call(engine, double)
    assert "test_misuse.py" in str(caught.value.where)
    assert engine.step().ok


def test_a_block_with_declared_types_can_be_edited_to_a_function_of_other_parameters() -> None:
    engine = lg.Engine()
    double = engine.add(lg.block(DOUBLE, name="double", inputs={"x": None}))
    lg.live.edit(engine, double, lambda y=4.0: y * 3.0)
    assert engine.step().ok
    assert float(engine.read(double)) == 12.0


def test_a_shape_rule_is_removed_with_its_output() -> None:
    engine = lg.Engine()
    double = engine.add(lg.block(DOUBLE, name="double", shapes={"result": "same(0)"}))
    assert engine.step().ok
    engine.edit(double, lg.block(lambda x=1.0: x * 3.0, outputs="other").body)
    assert engine.step().ok
    assert float(engine.read(double)) == 3.0


def test_blocks_inside_regions_count_their_runs(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: x * 2.0, name="inner"))
    body.expose(inner["x"]), body.expose(inner["result"])
    loop = engine.add(lg.For("loop", body, carried={"x": "result"}))
    engine.set(loop["x"], 1.0)
    runs = 0
    for count in (3, 0, 5):
        engine.set(loop["count"], count)
        engine.step()
        assert float(engine.read(loop)) == 2.0**count
        engine._runtime.take_readings(wait=True)
        runs += count
        assert inner.debug.runs == runs


def test_nested_regions_count_their_runs(executor_name: str) -> None:
    check_runs_of_inner_regions(lg.Engine(executor_name))


def test_nested_regions_count_their_runs_on_a_simulated_device() -> None:
    with simulated():
        check_runs_of_inner_regions(lg.Engine("cuda"))


def check_runs_of_inner_regions(engine: lg.Engine) -> None:
    def one(function: Any) -> tuple[lg.Composite, lg.Block]:
        body = lg.Composite("body")
        block = body.graph.add(lg.block(function, name="inner"))
        for pin in (*block.inputs.values(), *block.outputs.values()):
            body.expose(pin)
        return body, block

    (body, added), (other, doubled) = one(lambda x: x + 1.0), one(lambda y: y * 2.0)
    outer = lg.Composite("outer")
    loop = outer.graph.add(lg.For("loop", body, carried={"x": "result"}))
    gate = outer.graph.add(lg.If("gate", other))
    outer.expose(loop["count"], "times"), outer.expose(loop["x"]), outer.expose(loop["result"])
    outer.expose(gate["y"]), outer.expose(gate["condition"]), outer.expose(gate["result"], "doubled")
    around = engine.add(lg.For("around", outer, carried={"x": "result"}))
    engine.set(around["x"], 0.0), engine.set(around["y"], 3.0)
    expected = [0, 0, 0, 0]
    for frame, (times, count, condition) in enumerate([(3, 4, 1), (0, 2, 0), (2, 0, 1), (1, 5, 1)], 1):
        (
            engine.set(around["times"], times),
            engine.set(around["count"], count),
            engine.set(around["condition"], condition),
        )
        assert engine.step().ok
        assert float(engine.read(around["result"])) == times * count
        engine._runtime.take_readings(wait=True)
        expected = [*map(sum, zip(expected, (count, count, times * count, condition * count), strict=True))]
        assert [one.debug.runs for one in (loop, gate, added, doubled)] == expected
        assert around.debug.runs == frame


def nan_graph(executor: str) -> tuple[lg.Engine, list[lg.Block]]:
    engine = lg.Engine(executor)
    first = engine.add(lg.block(lambda x=1.0: x * 2.0, name="first"))
    root = engine.add(lg.block(lambda x, y=4.0: lg.sqrt(x) + y, name="root"))
    after = engine.add(lg.block(lambda x: x + 1.0, name="after"))
    engine.connect(first, root["x"]), engine.connect(root, after["x"])
    engine.step()
    return engine, [first, root, after]


def test_debug_nans_names_the_operation_that_produced_the_first_nan(executor_name: str) -> None:
    engine, (first, root, after) = nan_graph(executor_name)
    engine.set(first["x"], -1.0)
    with lg.debug_nans():
        frame = engine.step()
    assert frame.ran == ("first",)
    assert frame.failed == {"root", "after"}
    for block in (root, after):
        with pytest.raises(lg.KernelCheckError, match=r"`sqrt` produced the first NaN"):
            engine.read(block)
    assert float(engine.read(first)) == -2.0
    with lg.debug_nans():
        engine.set(first["x"], 8.0)
        assert not engine.step().failed
    assert float(engine.read(after)) == 9.0


def test_debug_nans_checks_inside_regions_and_the_numbers_of_pins(executor_name: str) -> None:
    engine, (_, root, _) = nan_graph(executor_name)
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: lg.log(x), name="inner"))
    body.expose(inner["x"]), body.expose(inner["result"])
    region = engine.add(lg.If("maybe", body))
    engine.set(region["condition"], 1)
    engine.set(region["x"], np.array([1.0, -1.0]))
    engine.set(root["y"], float("nan"))
    with lg.debug_nans():
        engine.step()
    with pytest.raises(lg.KernelCheckError, match=r"`log` produced the first NaN"):
        engine.read(region)
    with pytest.raises(lg.KernelCheckError, match=r"`root\.y`, which `root` reads"):
        engine.read(root)
    engine.set(region["condition"], 0)
    with lg.debug_nans():
        assert "maybe" not in engine.step().failed


def test_a_nan_that_only_an_untaken_branch_reads_does_not_affect_the_region() -> None:
    engine, (first, root, _) = nan_graph("cpu")
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: x + 1.0, name="inner"))
    body.expose(inner["x"]), body.expose(inner["result"])
    region = engine.add(lg.If("maybe", body))
    engine.connect(root, region["x"])
    engine.set(region["condition"], False)
    engine.set(first["x"], -1.0)
    with lg.debug_nans():
        assert engine.step().failed == {"root", "after"}
        assert engine.read(region) == 0.0
        engine.set(region["condition"], True)
        assert engine.step().failed == {"root", "after", "maybe"}


def test_dependents_of_a_region_with_an_inner_nan_fail_even_if_its_result_is_unchanged() -> None:
    engine, body = lg.Engine(), lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x=1.0: x + 1.0, name="inner"))
    unread = body.graph.add(lg.block(lambda x=1.0: lg.sqrt(x), name="unread"))
    body.expose(unread["x"]), body.expose(inner["result"])
    region = engine.add(lg.If("maybe", body))
    engine.set(region["condition"], True)
    engine.set(region["x"], 1.0)
    after = engine.add(lg.block(lambda x: x * 2.0, name="after"))
    engine.connect(region, after["x"])
    with lg.debug_nans():
        engine.step()
        assert engine.read(after) == 4.0
        engine.set(region["x"], -1.0)
        assert engine.step().failed == {"maybe", "after"}
        with pytest.raises(lg.KernelCheckError, match="`sqrt` produced the first NaN"):
            engine.read(after)
        engine.set(region["x"], 4.0)
        assert not engine.step().failed
        assert engine.read(after) == 4.0


def test_a_library_call_cannot_write_its_inputs() -> None:
    def spoil(stream: Any, x: Any, result: Any) -> None:
        x[0] = 100.0

    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    call = engine.add(lg.live.captured_block(spoil, outputs={"result": "same(0)"}))
    engine.set(double["x"], np.ones(2))
    engine.connect(double, call["x"])
    engine.step()
    with pytest.raises(lg.LivegradError, match="read-only"):
        engine.read(call)
    assert engine.read(double).tolist() == [2.0, 2.0]


def test_resized_bound_memory_is_not_read_until_it_is_bound_again(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    memory = np.ones(4)
    total = engine.add(lg.block(lambda x: lg.sum(x), name="total"))
    other = engine.add(lg.block(lambda x=1.0: x + 1.0, name="other"))
    after = engine.add(lg.block(lambda x: x * 2.0, name="after"))
    engine.connect(total, after["x"])
    engine.bind(total["x"], memory)
    engine.step()
    assert float(engine.read(after)) == 8.0
    memory.resize(1 << 15, refcheck=False)
    for value in (2.0, 3.0):
        engine.set(other["x"], value)
        frame = engine.step()
        assert frame.failed == {"total", "after"}
        assert repr(frame).endswith("failed after, total>")
        assert float(engine.read(other)) == value + 1.0
    with pytest.raises(lg.LivegradError, match="resized"):
        engine.read(after)
    memory[...] = 2.0
    engine.bind(total["x"], memory)
    assert not engine.step().failed
    assert float(engine.read(after)) == 4.0 * (1 << 15)


def test_bound_memory_that_was_resized_before_its_first_use_is_not_read(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    memory = np.ones(1 << 16)
    total = engine.add(lg.block(lambda x: lg.sum(x), name="total"))
    region_body = lg.Composite("body")
    inner = region_body.graph.add(lg.block(lambda x: lg.sum(x), name="inner"))
    region_body.expose(inner["x"]), region_body.expose(inner["result"])
    region = engine.add(lg.If("maybe", region_body))
    engine.set(region["condition"], 0)
    for pin in (total["x"], region["x"]):
        engine.bind(pin, memory)
    engine.step()
    memory.resize(4, refcheck=False)
    engine.set(region["condition"], 1)
    assert engine.step().failed == {"total", "maybe"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("frames_before", [0, 1])
def test_bound_memory_with_a_changed_type_or_shape_is_not_read(frames_before: int) -> None:
    engine = lg.Engine()
    double = engine.add(lg.block(lambda x: x * 2.0, name="double"))
    engine.add(lg.block(lambda x=1.0: x, name="other"))
    for attribute, value in (("dtype", np.int32), ("dtype", np.int16), ("shape", (2, 3))):
        memory = np.arange(6, dtype=np.float32)
        engine.bind(double["x"], memory)
        for _ in range(frames_before):
            engine.step()
        setattr(memory, attribute, value)
        frame = engine.step()
        assert frame.failed == ({"double"} if frames_before else set())
        if frames_before:
            with pytest.raises(lg.LivegradError, match="changed its type"):
                engine.read(double)
        else:
            assert np.array_equal(engine.read(double), memory * 2.0)


def test_the_array_of_an_external_buffer_cannot_be_replaced() -> None:
    external = lg.live.ExternalBuffer(np.zeros(3))
    with pytest.raises(AttributeError):
        external.array = np.ones(3)  # type: ignore[misc]


def test_a_body_with_other_parameters_is_allowed() -> None:
    engine = lg.Engine()
    block = engine.add(lg.block(lambda x=1.0, y=2.0: x + y, name="block"))
    engine.step()
    lg.live.edit(engine, block, lambda x=1.0, z=5.0: x * z)
    engine.step()
    assert engine.read(block) == 5.0
    assert list(block.inputs) == ["x", "z"]


def test_a_block_added_inside_a_region_counts_its_runs() -> None:
    engine, body = lg.Engine(), lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: x + 1.0, name="inner"))
    body.expose(inner["x"]), body.expose(inner["result"])
    region = engine.add(lg.If("maybe", body))
    engine.set(region["x"], np.ones(3))
    engine.bind(region["condition"], np.array(True))  # read in every frame
    engine.step()
    engine.step()
    added = body.graph.add(lg.block(lambda x: x * 3.0, name="added"))
    body.graph.connect(inner["result"], added["x"])
    for runs in (1, 2):
        engine.step()
        assert added.debug.runs == runs


def test_a_nan_in_a_waiting_value_is_reported_at_every_read() -> None:
    engine = lg.Engine()
    lazy = engine.add(lg.block(lambda x=0.0: x / x, name="lazy"))
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: x * 2.0, name="inner"))
    body.expose(inner["x"])
    body.expose(inner["result"])
    maybe = engine.add(lg.If("maybe", body))
    engine.connect(lazy, maybe["x"])
    engine.set(maybe["condition"], False)
    with lg.debug_nans():
        engine.step()
        for _ in range(3):
            with pytest.raises(lg.LivegradError, match="NaN"):
                engine.read(lazy)
        engine.step()
        with pytest.raises(lg.LivegradError, match="NaN"):
            engine.read(lazy)


def test_a_nan_in_a_late_value_is_explained_with_the_operands_of_its_frame() -> None:
    engine, body = lg.Engine(), lg.Composite("body")
    state = engine.add(lg.State("state", 0.0))
    grow = engine.add(lg.block(lambda x: x + 1.0, name="grow"))
    lazy = engine.add(lg.block(lambda x: x / x, name="lazy"))
    engine.connect(state["value"], grow["x"]), engine.connect(grow, state["next"])
    engine.connect(state["value"], lazy["x"])
    inner = body.graph.add(lg.block(lambda x: x * 2.0, name="inner"))
    body.expose(inner["x"]), body.expose(inner["result"])
    maybe = engine.add(lg.If("maybe", body))
    engine.connect(lazy, maybe["x"])
    engine.set(maybe["condition"], False)
    with lg.debug_nans():
        engine.step()
        with pytest.raises(lg.KernelCheckError, match=r"`div` produced the first NaN.*test_misuse\.py"):
            engine.read(lazy)


def test_with_reuse_memory_blocks_that_only_untaken_branches_read_run() -> None:
    engine = lg.Engine(reuse_memory=True)
    divide = engine.add(lg.block(lambda x=1, y=0: x // y, name="divide"))
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: x * 2, name="inner"))
    body.expose(inner["x"])
    body.expose(inner["result"])
    maybe = engine.add(lg.If("maybe", body))
    engine.connect(divide, maybe["x"])
    engine.set(maybe["condition"], False)
    assert "divide" in engine.step().failed


def test_a_waiting_value_that_depends_on_an_earlier_failure_cannot_be_read() -> None:
    engine = lg.Engine()
    divide = engine.add(lg.block(lambda x=1, y=0: x // y, name="divide"))
    engine.step()
    late = engine.add(lg.block(lambda x: x + 1, name="late"))
    body = lg.Composite("body")
    inner = body.graph.add(lg.block(lambda x: x * 2, name="inner"))
    body.expose(inner["x"])
    body.expose(inner["result"])
    maybe = engine.add(lg.If("maybe", body))
    engine.connect(divide, late["x"])
    engine.connect(late, maybe["x"])
    engine.set(maybe["condition"], False)
    for _ in range(2):
        engine.step()
        with pytest.raises(lg.LivegradError, match="division by zero"):
            engine.read(late)
    engine.set(divide["y"], 1)
    engine.step()
    assert int(engine.read(late)) == 2


def test_a_dependent_of_a_failed_block_has_its_error(executor_name: str) -> None:
    engine = lg.Engine(executor_name)
    first = engine.add(lg.block(lambda x=1, y=0: x // y, name="first"))
    second = engine.add(lg.block(lambda x, y=0: (x * 0) // (y * 2), name="second"))
    engine.connect(first, second["x"])
    engine.step()
    assert _error_of(engine, second) == _error_of(engine, first)


def _error_of(engine: lg.Engine, block: lg.Block) -> str:
    with pytest.raises(lg.LivegradError) as found:
        engine.read(block)
    return str(found.value)


def test_the_explanation_of_a_frame_shows_the_error_of_a_failed_step_once():
    engine = lg.Engine()
    chosen = engine.add(lg.block(lambda t, at=1.0: t[lg.astype(lg.asarray(at), lg.int64)], name="chosen"))
    after = engine.add(lg.block(lambda x: x + 1.0, name="after"))
    engine.connect(chosen, after["x"])
    engine.set(chosen["t"], np.arange(4.0))
    engine.step()
    assert "error" not in engine.explain()
    engine.set(chosen["at"], 9.0)
    engine.step()
    assert engine.explain().count("error: index out of range") == 1
    engine.set(chosen["at"], 3.0)
    engine.step()
    assert "error" not in engine.explain()
