"""LLVM IR of the built-in that runs a whole plan: it checks the arguments, allocates the results and runs the kernels.

`pool.py` appends the text to the other built-ins. `plan_call.py` writes the table that the code reads, and creates a
callable for each plan. The callable declines uncommon cases (an array of another type or layout, a handle without data,
a plan in use by another thread, a failed check): it returns None, and the caller runs the plan step by step.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from string import Template

from livegrad.runtime.cpu.native.plan_arguments_ir import READ_ARGUMENTS
from livegrad.runtime.cpu.native.plan_results_ir import ALLOCATE_RESULTS, FILL_SLOTS

C_API = (
    "PyFloat_AsDouble",
    "PyLong_AsLongLongAndOverflow",
    "PyObject_CallNoArgs",
    "PyObject_CallOneArg",
    "PyErr_SetNone",
    "PyErr_Fetch",
    "PyErr_Restore",
    "PyList_New",
    "PyList_SetItem",
    "PyThread_get_thread_ident",
    "Py_DecRef",
)


@dataclass(frozen=True)
class ObjectLayout:
    """Byte offsets of the members of objects that the code reads."""

    type: int
    tuple_items: int
    bytes_data: int
    array_data: int
    array_rank: int
    array_shape: int
    array_dtype: int
    array_flags: int


_DECLARATIONS = """
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
declare void @PyErr_SetNone(ptr)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare i64 @PyThread_get_thread_ident()
declare void @Py_DecRef(ptr)
declare ptr @numpy_new_from_descr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
@livegrad_float = external global i8
@livegrad_int = external global i8
@livegrad_keyboard_interrupt = external global i8
"""

_RUN = """
; Runs segments of four words: the records, their count, whether an interrupt may end the run, and the address of the
; status word. Returns 0; 1 if a check failed; -1 with an exception.
define internal i32 @run_segments(i64 %count, ptr %segments, i64 %main_thread) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %accept
one:
  %segment = getelementptr [4 x i64], ptr %segments, i64 %n
  %records = load ptr, ptr %segment
  %calls = call i64 @word_at(ptr %segment, i64 1)
  %open = call i64 @word_at(ptr %segment, i64 2)
  %status_slot = getelementptr i64, ptr %segment, i64 3
  %status = load ptr, ptr %status_slot
  %interruptible = icmp ne i64 %open, 0
  br i1 %interruptible, label %choose, label %plain
plain:
  call void @run_records(ptr %records, i64 %calls)
  br label %ran
choose:
  %thread = call i64 @PyThread_get_thread_ident()
  %is_main = icmp eq i64 %thread, %main_thread
  br i1 %is_main, label %on_main, label %off_main
on_main:
  %flag0 = call i32 @run_invoke_interruptible(ptr %records)
  br label %interrupted
off_main:
  %flag1 = call i32 @run_invoke_off_main(ptr %records)
  br label %interrupted
interrupted:
  %flag = phi i32 [ %flag0, %on_main ], [ %flag1, %off_main ]
  %quiet = icmp eq i32 %flag, 0
  br i1 %quiet, label %ran, label %stop
stop:
  %raised = icmp slt i32 %flag, 0
  br i1 %raised, label %raise, label %raise_interrupt
raise_interrupt:
  call void @PyErr_SetNone(ptr @livegrad_keyboard_interrupt)
  br label %raise
raise: ; a check may have failed before the interrupt
  %has_status = icmp ne ptr %status, null
  br i1 %has_status, label %clean, label %failed
clean:
  store i64 -1, ptr %status
  br label %failed
failed:
  ret i32 -1
ran:
  %checked = icmp ne ptr %status, null
  br i1 %checked, label %look, label %next
look:
  %word = load i64, ptr %status
  %fine = icmp eq i64 %word, -1
  br i1 %fine, label %next, label %wrong
wrong:
  store i64 -1, ptr %status
  ret i32 1
next:
  %n1 = add i64 %n, 1
  br label %check
accept:
  ret i32 0
}

; Takes the lock of a plan or, if its kernels never release the GIL, only tests it. Returns 1; 0 if another thread holds
; the lock; -1 with an exception.
define internal i32 @enter_plan(ptr %acquire, i1 %tests_only) {
entry:
  br i1 %tests_only, label %test_only, label %take
test_only:
  %locked = call ptr @PyObject_CallNoArgs(ptr %acquire)
  %free = icmp eq ptr %locked, @livegrad_false
  br label %answer
take:
  %taken = call ptr @PyObject_CallOneArg(ptr %acquire, ptr @livegrad_false)
  %got = icmp eq ptr %taken, @livegrad_true
  br label %answer
answer:
  %object = phi ptr [ %locked, %test_only ], [ %taken, %take ]
  %yes = phi i1 [ %free, %test_only ], [ %got, %take ]
  %failed = icmp eq ptr %object, null
  br i1 %failed, label %raise, label %finish
raise:
  ret i32 -1
finish:
  call void @Py_DecRef(ptr %object)
  %result = zext i1 %yes to i32
  ret i32 %result
}

; run_plan(arguments...): %self is a tuple of the table, as bytes, and the object that keeps its pointers alive.
define ptr @py_run_plan(ptr %self, ptr %args, i64 %argument_count) {
entry:
  %table_object = call ptr @load_at(ptr %self, i64 $tuple_items)
  %table = getelementptr i8, ptr %table_object, i64 $bytes_data
  %count = call i64 @word_at(ptr %table, i64 0)
  %result_count = call i64 @word_at(ptr %table, i64 1)
  %arrays = alloca ptr, i64 %count
  %numbers = alloca i64, i64 %count
  %results = alloca ptr, i64 %result_count
  %error_type = alloca ptr
  %error_value = alloca ptr
  %error_traceback = alloca ptr
  %acquire_slot = getelementptr i64, ptr %table, i64 3
  %acquire = load ptr, ptr %acquire_slot
  %release_slot = getelementptr i64, ptr %table, i64 4
  %release = load ptr, ptr %release_slot
  %tests_only = icmp eq ptr %release, null
  %layout_slot = getelementptr i64, ptr %table, i64 5
  %layout = load ptr, ptr %layout_slot
  %freeze = call i64 @word_at(ptr %table, i64 6)
  %frozen = icmp ne i64 %freeze, 0
  %argument_slot = getelementptr i64, ptr %table, i64 7
  %argument_records = load ptr, ptr %argument_slot
  %result_slot = getelementptr i64, ptr %table, i64 8
  %result_records = load ptr, ptr %result_slot
  %complete = icmp eq i64 %argument_count, %count
  br i1 %complete, label %read, label %decline
read:
  %fits = call i1 @read_arguments(ptr %args, i64 %count, ptr %argument_records, ptr %layout, ptr %arrays, ptr %numbers)
  br i1 %fits, label %make, label %decline
make: ; allocations may run Python code, which could free the arrays, so take references
  call void @take_references(i64 %count, ptr %arrays)
  %allocated = call i1 @allocate_results(i64 %result_count, ptr %result_records, ptr %results)
  br i1 %allocated, label %enter, label %raise_early
enter:
  %entered = call i32 @enter_plan(ptr %acquire, i1 %tests_only)
  %is_free = icmp eq i32 %entered, 1
  br i1 %is_free, label %run, label %drop
run:
  call void @fill_slots(i64 %count, ptr %argument_records, ptr %arrays, ptr %numbers)
  call void @bind_results(i64 %result_count, ptr %result_records, ptr %results, i1 %frozen)
  %segment_count = call i64 @word_at(ptr %table, i64 2)
  %segment_slot = getelementptr i64, ptr %table, i64 9
  %segments = load ptr, ptr %segment_slot
  %main_thread = call i64 @word_at(ptr %table, i64 10)
  %state = call i32 @run_segments(i64 %segment_count, ptr %segments, i64 %main_thread)
  br i1 %tests_only, label %finished, label %leave
leave: ; no Python function may be called while an exception is set
  %had_error = icmp slt i32 %state, 0
  br i1 %had_error, label %leave_with_error, label %leave_without_error
leave_with_error:
  call void @PyErr_Fetch(ptr %error_type, ptr %error_value, ptr %error_traceback)
  %released0 = call ptr @PyObject_CallNoArgs(ptr %release)
  call void @Py_DecRef(ptr %released0)
  %e0 = load ptr, ptr %error_type
  %e1 = load ptr, ptr %error_value
  %e2 = load ptr, ptr %error_traceback
  call void @PyErr_Restore(ptr %e0, ptr %e1, ptr %e2)
  br label %finished
leave_without_error:
  %released1 = call ptr @PyObject_CallNoArgs(ptr %release)
  call void @Py_DecRef(ptr %released1)
  br label %finished
finished:
  %good = icmp eq i32 %state, 0
  br i1 %good, label %finish, label %drop
finish:
  call void @drop_references(i64 %count, ptr %arrays)
  %answer = call ptr @return_results(i64 %result_count, ptr %results)
  ret ptr %answer
drop:
  %status = phi i32 [ %entered, %enter ], [ %state, %finished ]
  call void @drop_references(i64 %result_count, ptr %results)
  call void @drop_references(i64 %count, ptr %arrays)
  %failed = icmp slt i32 %status, 0
  br i1 %failed, label %raise, label %decline
raise_early:
  call void @drop_references(i64 %count, ptr %arrays)
  br label %raise
raise:
  ret ptr null
decline:
  %none = call ptr @return_none()
  ret ptr %none
}
"""


def plan_call_ir(layout: ObjectLayout) -> str:
    """The IR of `run_plan` for objects of this layout."""
    text = Template("".join((READ_ARGUMENTS, FILL_SLOTS, ALLOCATE_RESULTS, _RUN)))
    return _DECLARATIONS + text.substitute(asdict(layout))
