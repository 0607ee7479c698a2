"""Sessions: each owns separate objects, and a fresh session leaves the outer one unchanged; process-wide state."""

import gc
import threading
import weakref
from pathlib import Path

import numpy as np

import livegrad as lg
from livegrad.state import BackgroundWork, Owned, fresh_session
from scripts.measure_code import Module, module_state, read_modules

# All module-level state, by the reason why no session owns it. Whatever else changes belongs to a session
# (`livegrad.state.Owned`).
PROCESS_WIDE = {
    "the owner of state, and the one hook for forks": "state._switch state._fork_hooks",
    "identity is equality, in whatever session an object was made": (
        "ir.node._table ir.node._types ir.types.interned._interned ops.context._keys "
        "contexts.cache.interned_values._serials"
    ),
    "tells of objects of the program, which may be used in any session": (
        "lazy.lazy_values.clock lazy.gradient_variables.variables lazy.gradient_variables._before_updates "
        "lazy.gradient_variables._updated "
        "lazy.gradient_variables._late "
        "implicit.distances.distance_call._distances "
        "runtime.cuda.dlpack._exports runtime.cuda.dlpack._export_ids"
    ),
    "what a thread is doing": (
        "contexts.evaluate._active frontend.function.captured.python_calls frontend.function.function_compiler._stack "
        "ir.size_guards._thread ir.source_lines.ambient lazy.nan_checks.watch tensors.concrete.bound_arguments "
        "runtime.cuda.driver._thread"
    ),
    "Python has one collector, one stack limit, one table of modules and of source lines, and built-ins that stay": (
        "ir.collecting._pause ir.recursion._limit "
        "frontend.function.python_source._exec_sources frontend.function.python_source._source_ids "
        "diagnostics.errors.cached_origins diagnostics.errors._library_files ir.node._plain_keys "
        "runtime.cpu.native.invoke._definitions live.blocks.source_files._runs live.blocks.source_files._loads"
    ),
    "native code that other native code has the address of, and that is never freed": (
        "runtime.cpu.math_library._compiled runtime.cpu.math_library._lock "
        "runtime.cpu.native.chain_kernel.chain_library runtime.cpu.native.compile_thread._native "
        "runtime.cpu.native.invoke.invoker runtime.cpu.native.llvm_jit._immortal "
        "runtime.cpu.native.loop_kernel.iterations_library runtime.cpu.native.trampolines._free"
    ),
    "native threads, of which a machine has one set of processors": (
        "runtime.cpu.native.pool._runtime runtime.cpu.native.pool._runtime_lock "
        "runtime.cpu.native.compile_thread._compile_thread"
    ),
    "LLVM and the process that it compiles for": (
        "runtime.cpu.native.linker._process runtime.cpu.native.llvm_jit._linking_machine "
        "runtime.cpu.native.host_target.host_target runtime.cpu.native.llvm_jit._half_conversions "
        "runtime.cpu.native.unlocked_compile._gate "
        "runtime.cpu.native.unlocked_compile._machines"
    ),
    "devices and libraries that are opened once; device memory": (
        "lazy.devices._cuda runtime.cuda.device_memory.make_room runtime.cuda.driver._context_numbers "
        "runtime.cuda.driver._start runtime.cuda.driver.reason_for_no_cuda runtime.cuda.libraries.capture._lock "
        "runtime.cuda.libraries.cublas.library runtime.cuda.libraries.cufft.library "
        "runtime.cuda.libraries.cudnn.library runtime.cuda.libraries.cusolver.library "
        "runtime.cuda.nvrtc.reason_for_no_compiler runtime.opencl._context runtime.opencl.reason_for_no_opencl"
    ),
    "constants that are found when they are first needed": (
        "runtime.cpu.native.caches.second_level_bytes runtime.cpu.native.object_layout.find_layout "
        "tensors.native_handles.handle_layout "
        "codegen.llvm.vector_math.large_angles._two_over_pi live.cpu.cpu_executor.machine_memory "
        "runtime.serialised.compiler_stamp runtime.serialised.emitter_stamp "
        "tensors.methods.namespace tensors.deferred._indexing"
    ),
    "extension points for users": (
        "implicit.nodes.node_types.NODE_TYPES implicit.nodes.node_types._BY_TAG ops.context._features "
        "passes.batch.walk.RULES tensors.pytrees._registered"
    ),
    "tables that are filled while the package is imported, and then stay": (
        "frontend.function.intrinsics.INTRINSICS frontend.function.intrinsics.SPECIAL_FORMS "
        "frontend.function.intrinsics.TENSOR_FUNCTIONS frontend.function.type_rules.rules"
    ),
}


def test_all_state_of_modules_is_listed_with_a_reason() -> None:
    listed = {f"livegrad.{name}" for names in PROCESS_WIDE.values() for name in names.split()}
    actual = set(module_state(read_modules()))
    assert actual - listed == set(), "let a session own it: livegrad.state.Owned"
    assert listed - actual == set(), "it is gone: take it off the list"


def test_state_of_modules_is_found_however_it_is_written() -> None:
    text = """
from functools import cache, lru_cache
TABLE = {"a": 1}
filled = {"a": 1}
empty: dict[str, int] = {}
number = 0
calls = Counting()
frozen = Frozen(1)
owned = Owned(dict)

class Counting:
    def count(self):
        self.times += 1

class Frozen:
    def __init__(self, value):
        self.value = value

class Owned:
    def replace(self, value):
        self.current = value

def fill(key):
    global number
    number += 1
    filled[key] = number

@cache
def made_once(): ...

@lru_cache(maxsize=4)
def memo(x): ...
"""
    actual = module_state([Module("m", Path("m.py"), text)])
    assert actual == ["m.calls", "m.empty", "m.filled", "m.made_once", "m.number"]


class _Table:
    def __init__(self) -> None:
        self.rows: list[str] = []


def test_each_session_owns_its_own_object() -> None:
    table = Owned(_Table)
    table.current.rows.append("outside")
    with fresh_session():
        assert table.current.rows == []
        table.current.rows.append("inside")
        with fresh_session():
            assert table.current.rows == []
        assert table.current.rows == ["inside"]
    assert table.current.rows == ["outside"]


def test_a_fresh_session_drops_everything_it_owns() -> None:
    table = Owned(_Table)
    with fresh_session() as session:
        made = weakref.ref(table.current)
        assert made() in session.objects.values()
    gc.collect()
    assert made() is None


def test_an_object_first_used_in_a_fresh_session_is_created_again_outside() -> None:
    table = Owned(_Table)
    with fresh_session():
        table.current.rows.append("inside")
    assert table.current.rows == []


def test_replace_changes_the_object_of_the_current_session_only() -> None:
    table = Owned(_Table)
    before, other = table.current, _Table()
    with fresh_session():
        table.replace(other)
        assert table.current is other
    assert table.current is before


def test_threads_that_ask_at_the_same_time_get_one_object() -> None:
    barrier, actual = threading.Barrier(8), []

    def ask() -> None:
        barrier.wait()
        actual.append(table.current)

    table = Owned(_Table)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(own) for own in actual}) == 1


class _Log(BackgroundWork):
    def __init__(self) -> None:
        self.events: list[str] = []

    def suspend(self) -> None:
        self.events.append("suspend")

    def resume(self) -> None:
        self.events.append("resume")

    def close(self) -> None:
        self.events.append("close")


def test_background_work_outside_is_suspended_and_that_inside_closed() -> None:
    work = Owned(_Log)
    outside = work.current
    with fresh_session():
        inside = work.current
        assert outside.events == ["suspend"]
    assert outside.events == ["suspend", "resume"]
    assert inside.events == ["close"]


def test_counts_and_budgets_belong_to_a_session() -> None:
    x = lg.ones(3)
    before = lg.stats()
    with fresh_session():
        assert lg.stats().executions == 0
        assert lg.sin(x - 1.0).tolist() == [0.0, 0.0, 0.0]
        assert lg.stats().executions == lg.stats().programs_compiled == 1
        lg.set_cache_budget(1 << 20)
    assert lg.stats() == before


def test_a_leaf_filled_in_another_session_makes_values_stale() -> None:
    x = lg.empty(2)
    x.fill(1.0)
    y = x + 1.0
    assert y.tolist() == [2.0, 2.0]
    with fresh_session():
        x.fill(4.0)
        assert y.tolist() == [5.0, 5.0]
        x.fill(5.0)
    assert y.tolist() == [6.0, 6.0]


def test_a_value_that_dies_in_another_session_is_taken_from_the_count_of_its_own() -> None:
    gc.collect()  # values that died in cycles before, which the collection below would take from the count
    before = lg.stats().bytes_cached
    y = lg.asarray(np.ones(1000, np.float32)) * 1.5
    lg.execute(y)
    assert lg.stats().bytes_cached == before + 4000
    with fresh_session():
        del y
        gc.collect()
        assert lg.stats().bytes_cached == 0
    assert lg.stats().bytes_cached == before
