"""LLVM IR of Python built-ins that call kernels: `METH_FASTCALL` functions of CPython's C API.

`pool.py` appends the text to that of `pool_ir.py` and provides the addresses of the C API. A ctypes call costs 0.6 µs
and always releases the GIL; these cost 0.05 µs, and release it (0.06 µs) only if other threads get work.

Each built-in checks the number of its arguments and reads them as integers. `%record` is a kernel call of four words:
kernel, total, grain, args.
"""

from __future__ import annotations

from string import Template

_MESSAGES = {
    "message_invoke": "expected integers: the kernel's address (not 0), total, grain, args",
    "message_sequence": "expected integers: the address of the records, their count",
    "message_array": "expected a numpy.ndarray",
    "message_words": "expected integers: the block's address, an index; then integers or arrays",
}

C_API = (
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_Occurred",
    "PyErr_CheckSignals",
    "PyErr_SetString",
    "PyType_IsSubtype",
    "Py_IncRef",
)

_DECLARATIONS = """
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_CheckSignals()
declare void @PyErr_SetString(ptr, ptr)
declare i32 @PyType_IsSubtype(ptr, ptr)
declare void @Py_IncRef(ptr)
@livegrad_none = external global i8
@livegrad_true = external global i8
@livegrad_false = external global i8
@livegrad_type_error = external global i8
@livegrad_ndarray = external global i8
define internal ptr @return_none() alwaysinline {
  call void @Py_IncRef(ptr @livegrad_none)
  ret ptr @livegrad_none
}

; Sets a TypeError, unless a failed conversion to an integer has set an error already. Returns null.
define internal ptr @return_type_error(ptr %message) noinline {
entry:
  %error = call ptr @PyErr_Occurred()
  %unset = icmp eq ptr %error, null
  br i1 %unset, label %set, label %finish
set:
  call void @PyErr_SetString(ptr @livegrad_type_error, ptr %message)
  br label %finish
finish:
  ret ptr null
}

; Reads the four integers of a kernel call into %record. Returns 0 if one is not an integer, or the kernel is null.
define internal i1 @read_call(ptr %args, i64 %count, ptr %record) alwaysinline {
entry:
  %four = icmp eq i64 %count, 4
  br i1 %four, label %read, label %refuse
read:
  %o0 = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %o1 = load ptr, ptr %p1
  %p2 = getelementptr ptr, ptr %args, i64 2
  %o2 = load ptr, ptr %p2
  %p3 = getelementptr ptr, ptr %args, i64 3
  %o3 = load ptr, ptr %p3
  %kernel = call i64 @PyLong_AsLongLong(ptr %o0)
  %total = call i64 @PyLong_AsLongLong(ptr %o1)
  %grain = call i64 @PyLong_AsLongLong(ptr %o2)
  %block = call i64 @PyLong_AsLongLong(ptr %o3)
  store i64 %kernel, ptr %record
  %w1 = getelementptr i64, ptr %record, i64 1
  store i64 %total, ptr %w1
  %w2 = getelementptr i64, ptr %record, i64 2
  store i64 %grain, ptr %w2
  %w3 = getelementptr i64, ptr %record, i64 3
  store i64 %block, ptr %w3
  %error = call ptr @PyErr_Occurred()
  %are_integers = icmp eq ptr %error, null
  %has_kernel = icmp ne i64 %kernel, 0
  %ok = and i1 %are_integers, %has_kernel
  br i1 %ok, label %accept, label %refuse
accept:
  ret i1 true
refuse:
  ret i1 false
}

; Runs a kernel on the pool without the GIL.
define internal void @run_released(ptr %kernel, i64 %total, i64 %grain, ptr %block) {
  %thread = call ptr @PyEval_SaveThread()
  call void @pool_run(ptr %kernel, i64 %total, i64 %grain, ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  ret void
}
"""

_INVOKE = """
; $name(kernel, total, grain, args): releases the GIL $policy. A run that keeps the GIL is one call of the kernel.
define ptr @py_$name(ptr %self, ptr %args, i64 %count) {
entry:
  %record = alloca [4 x i64]
  %ok = call i1 @read_call(ptr %args, i64 %count, ptr %record)
  br i1 %ok, label %run, label %refuse
run:
  %kernel = load ptr, ptr %record
  %w1 = getelementptr i64, ptr %record, i64 1
  %total = load i64, ptr %w1
  %w2 = getelementptr i64, ptr %record, i64 2
  %grain = load i64, ptr %w2
  %w3 = getelementptr i64, ptr %record, i64 3
  %block = load ptr, ptr %w3
  %long = icmp sgt i64 %total, $threshold
  br i1 %long, label %release, label %keep
release:
  call void @run_released(ptr %kernel, i64 %total, i64 %grain, ptr %block)
  br label %finish
keep:
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %once, label %finish
once:
  call void %kernel(i64 0, i64 %total, ptr %block, i64 0)
  br label %finish
finish:
  %none = call ptr @return_none()
  ret ptr %none
refuse:
  %error = call ptr @return_type_error(ptr @message_invoke)
  ret ptr %error
}
"""

_SEQUENCE = """
; Runs records of four words (kernel, total, grain, args) in sequence. Releases the GIL before the first record of more
; than one chunk, and takes it again at the end: %thread is null while this thread has the GIL.
define internal void @run_records(ptr %records, i64 %count) {
start:
  br label %check
check:
  %n = phi i64 [ 0, %start ], [ %n1, %next ]
  %thread = phi ptr [ null, %start ], [ %thread1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %step, label %over
step:
  %record = getelementptr [4 x i64], ptr %records, i64 %n
  %kernel = load ptr, ptr %record
  %r1 = getelementptr i64, ptr %record, i64 1
  %total = load i64, ptr %r1
  %r2 = getelementptr i64, ptr %record, i64 2
  %grain = load i64, ptr %r2
  %r3 = getelementptr i64, ptr %record, i64 3
  %block = load ptr, ptr %r3
  %has_gil = icmp eq ptr %thread, null
  %long = icmp sgt i64 %total, %grain
  %release = and i1 %has_gil, %long
  br i1 %release, label %release_gil, label %run
release_gil:
  %saved = call ptr @PyEval_SaveThread()
  br label %run
run:
  %thread1 = phi ptr [ %thread, %step ], [ %saved, %release_gil ]
  call void @pool_run(ptr %kernel, i64 %total, i64 %grain, ptr %block)
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %check
over:
  %released = icmp ne ptr %thread, null
  br i1 %released, label %take_gil, label %finish
take_gil:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %finish
finish:
  ret void
}

; invoke_sequence(records, count): runs the records at an address.
define ptr @py_invoke_sequence(ptr %self, ptr %args, i64 %argument_count) {
entry:
  %two = icmp eq i64 %argument_count, 2
  br i1 %two, label %read, label %refuse
read:
  %o0 = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %o1 = load ptr, ptr %p1
  %address = call i64 @PyLong_AsLongLong(ptr %o0)
  %count = call i64 @PyLong_AsLongLong(ptr %o1)
  %error = call ptr @PyErr_Occurred()
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %refuse, label %start
start:
  %records = inttoptr i64 %address to ptr
  call void @run_records(ptr %records, i64 %count)
  %none = call ptr @return_none()
  ret ptr %none
refuse:
  %failed = call ptr @return_type_error(ptr @message_sequence)
  ret ptr %failed
}
"""

_INTERRUPTIBLE = """
; Runs a record (kernel, total, grain, args) that SIGINT may interrupt. The variant for the main thread installs a
; SIGINT handler in front of Python's; the other variant is for other threads. PyErr_CheckSignals handles a signal from
; before the installation; a later signal sets the flag. Returns the flag, or -1 with an exception.
define internal i32 @run_$name(ptr %record) {
enter:
  %others = atomicrmw add ptr @interruptible_runs, i32 1 seq_cst
  %first = icmp eq i32 %others, 0
  br i1 %first, label %clear, label %chain
clear: ; only the first of concurrent runs, because the others may not have read the flag yet
  store atomic i32 0, ptr @interrupt_flag seq_cst, align 4
  br label %chain
chain:
  %chained = $chain
  %pending = call i32 @PyErr_CheckSignals()
  %stop = icmp ne i32 %pending, 0
  br i1 %stop, label %leave, label %run
run:
  %kernel = load ptr, ptr %record
  %w1 = getelementptr i64, ptr %record, i64 1
  %total = load i64, ptr %w1
  %w2 = getelementptr i64, ptr %record, i64 2
  %grain = load i64, ptr %w2
  %w3 = getelementptr i64, ptr %record, i64 3
  %block = load ptr, ptr %w3
  call void @run_released(ptr %kernel, i64 %total, i64 %grain, ptr %block)
  %raised = call i32 @PyErr_CheckSignals()
  br label %leave
leave:
  %failed = phi i32 [ %pending, %chain ], [ %raised, %run ]
  %flag = load atomic i32, ptr @interrupt_flag seq_cst, align 4
  %needs_unchain = icmp ne i32 %chained, 0
  br i1 %needs_unchain, label %unchain, label %left
unchain:
  call void @unchain_sigint()
  br label %left
left:
  %rest = atomicrmw sub ptr @interruptible_runs, i32 1 seq_cst
  %error = icmp ne i32 %failed, 0
  %set = icmp ne i32 %flag, 0
  %interrupted = zext i1 %set to i32
  %result = select i1 %error, i32 -1, i32 %interrupted
  ret i32 %result
}

define ptr @py_$name(ptr %self, ptr %args, i64 %count) {
entry:
  %record = alloca [4 x i64]
  %ok = call i1 @read_call(ptr %args, i64 %count, ptr %record)
  br i1 %ok, label %run, label %refuse
run:
  %flag = call i32 @run_$name(ptr %record)
  %error = icmp slt i32 %flag, 0
  br i1 %error, label %raise, label %finish
raise:
  ret ptr null
finish:
  %set = icmp ne i32 %flag, 0
  %result = select i1 %set, ptr @livegrad_true, ptr @livegrad_false
  call void @Py_IncRef(ptr %result)
  ret ptr %result
refuse:
  %wrong = call ptr @return_type_error(ptr @message_invoke)
  ret ptr %wrong
}
"""

_ARRAYS = """
; The data pointer of an array; null for other objects. It follows the object header of $header_bytes bytes.
define internal ptr @data_of(ptr %object) alwaysinline {
entry:
  %type_slot = getelementptr i8, ptr %object, i64 $type_offset
  %type = load ptr, ptr %type_slot
  %exact = icmp eq ptr %type, @livegrad_ndarray
  br i1 %exact, label %read, label %derived
derived:
  %is_array = call i32 @PyType_IsSubtype(ptr %type, ptr @livegrad_ndarray)
  %yes = icmp ne i32 %is_array, 0
  br i1 %yes, label %read, label %refuse
read:
  %slot = getelementptr i8, ptr %object, i64 $header_bytes
  %data = load ptr, ptr %slot
  ret ptr %data
refuse:
  ret ptr null
}

; array_address(array)
define ptr @py_array_address(ptr %self, ptr %object) {
entry:
  %data = call ptr @data_of(ptr %object)
  %is_array = icmp ne ptr %data, null
  br i1 %is_array, label %return_address, label %refuse
return_address:
  %address = ptrtoint ptr %data to i64
  %result = call ptr @PyLong_FromLongLong(i64 %address)
  ret ptr %result
refuse:
  %wrong = call ptr @return_type_error(ptr @message_array)
  ret ptr %wrong
}

; store_words(block, index, value, ...): stores integers, or the data pointers of arrays, to consecutive words.
define ptr @py_store_words(ptr %self, ptr %args, i64 %count) {
entry:
  %enough = icmp sge i64 %count, 2
  br i1 %enough, label %read, label %refuse
read:
  %o0 = load ptr, ptr %args
  %p1 = getelementptr ptr, ptr %args, i64 1
  %o1 = load ptr, ptr %p1
  %address = call i64 @PyLong_AsLongLong(ptr %o0)
  %index = call i64 @PyLong_AsLongLong(ptr %o1)
  %error = call ptr @PyErr_Occurred()
  %bad = icmp ne ptr %error, null
  br i1 %bad, label %refuse, label %start
start:
  %block = inttoptr i64 %address to ptr
  %base = getelementptr i64, ptr %block, i64 %index
  br label %check
check:
  %n = phi i64 [ 2, %start ], [ %n1, %stored ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %slot = getelementptr ptr, ptr %args, i64 %n
  %object = load ptr, ptr %slot
  %data = call ptr @data_of(ptr %object)
  %is_array = icmp ne ptr %data, null
  br i1 %is_array, label %array, label %integer
array:
  %data_word = ptrtoint ptr %data to i64
  br label %stored
integer: ; -1 is the value, or an exception was raised
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  %minus = icmp eq i64 %value, -1
  br i1 %minus, label %suspect, label %stored
suspect:
  %failed = call ptr @PyErr_Occurred()
  %wrong_word = icmp ne ptr %failed, null
  br i1 %wrong_word, label %refuse, label %stored
stored:
  %word = phi i64 [ %data_word, %array ], [ %value, %integer ], [ %value, %suspect ]
  %offset = sub i64 %n, 2
  %target = getelementptr i64, ptr %base, i64 %offset
  store i64 %word, ptr %target
  %n1 = add i64 %n, 1
  br label %check
finish:
  %none = call ptr @return_none()
  ret ptr %none
refuse:
  %wrong = call ptr @return_type_error(ptr @message_words)
  ret ptr %wrong
}
"""


def builtins_ir(header_bytes: int) -> str:
    """The IR of the built-ins; `header_bytes` is `object.__basicsize__` of this interpreter."""
    invoke, interruptible = Template(_INVOKE), Template(_INTERRUPTIBLE)
    return "".join(
        (
            *(f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"\n' for name, text in _MESSAGES.items()),
            _DECLARATIONS,
            invoke.substitute(name="invoke", policy="if there is more than one chunk", threshold="%grain"),
            invoke.substitute(name="invoke_released", policy="always", threshold="0"),
            _SEQUENCE,
            interruptible.substitute(name="invoke_interruptible", chain="call i32 @chain_sigint()"),
            interruptible.substitute(name="invoke_off_main", chain="add i32 0, 0"),
            Template(_ARRAYS).substitute(header_bytes=header_bytes, type_offset=header_bytes - 8),
        )
    )
