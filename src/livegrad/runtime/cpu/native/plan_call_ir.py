"""LLVM IR text of the built-in that runs a whole plan: checks the arguments, makes the results, calls the kernels.

Called by `pool.py`, which appends the text to the other built-ins. `plan_call.py` writes the table that the code reads
(its words are named there) and makes one Python callable for each plan. Whatever is not plain (an array of another type
or layout, a handle without data, a plan in use by another thread, a failed check) is declined: the callable returns
None, nothing has happened, and the caller goes the general way.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from string import Template

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
    """Where the running interpreter and NumPy keep what the code reads, in bytes from the start of an object."""

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

# %source says which arguments are taken: 0 any, 1 arrays, 2 handles, 3 numbers.
_ARGUMENTS = """
define internal ptr @load_at(ptr %object, i64 %offset) alwaysinline {
  %place = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %place
  ret ptr %value
}

define internal i64 @word_at(ptr %table, i64 %index) alwaysinline {
  %place = getelementptr i64, ptr %table, i64 %index
  %value = load i64, ptr %place
  ret i64 %value
}

define internal i1 @is_array(ptr %object) alwaysinline {
  %type = call ptr @load_at(ptr %object, i64 $type)
  %exact = icmp eq ptr %type, @livegrad_ndarray
  ret i1 %exact
}

; Word %index of the layout is an offset in %object: loads what is there.
define internal ptr @slot_of(ptr %object, ptr %layout, i64 %index) alwaysinline {
  %offset = call i64 @word_at(ptr %layout, i64 %index)
  %value = call ptr @load_at(ptr %object, i64 %offset)
  ret ptr %value
}

; Whether word %index of the layout is the address of %object.
define internal i1 @is_word(ptr %object, ptr %layout, i64 %index) alwaysinline {
  %word = call i64 @word_at(ptr %layout, i64 %index)
  %address = ptrtoint ptr %object to i64
  %same = icmp eq i64 %address, %word
  ret i1 %same
}

; Whether a value with this stamp is good: no leaf was given other data since, and no gradient may lead through it.
define internal i1 @is_current(ptr %stamp, ptr %layout) alwaysinline {
  %clock_word = call i64 @word_at(ptr %layout, i64 5)
  %clock = inttoptr i64 %clock_word to ptr
  %now = call ptr @slot_of(ptr %clock, ptr %layout, i64 20)
  %same = icmp eq ptr %stamp, %now
  %count_word = call i64 @word_at(ptr %layout, i64 6)
  %count_place = inttoptr i64 %count_word to ptr
  %count = load i64, ptr %count_place
  %none = icmp eq i64 %count, 0
  %current = and i1 %same, %none
  ret i1 %current
}

; The array behind a handle: data that nobody has asked the node of, a deferred op that is computed, the data of a leaf,
; or the value of a computed node. Null for all others. `native_handles.py` has the words of the layout.
define internal ptr @array_of_handle(ptr %object, ptr %layout) {
entry:
  %extra = call ptr @slot_of(ptr %object, ptr %layout, i64 7)
  %plain = icmp eq ptr %extra, @livegrad_none
  br i1 %plain, label %look, label %decline
look:
  %deferred = call ptr @slot_of(ptr %object, ptr %layout, i64 8)
  %unset = icmp eq ptr %deferred, null
  br i1 %unset, label %decline, label %set
set:
  %settled = icmp eq ptr %deferred, @livegrad_none
  br i1 %settled, label %of_node, label %of_deferred
of_deferred:
  %source = call ptr @load_at(ptr %deferred, i64 $tuple_items)
  %source_type = call ptr @load_at(ptr %source, i64 $type)
  %is_op = call i1 @is_word(ptr %source_type, ptr %layout, i64 2)
  br i1 %is_op, label %of_op, label %found
of_op:
  %second = add i64 $tuple_items, 8
  %index = call ptr @load_at(ptr %deferred, i64 %second)
  %whole = icmp eq ptr %index, @livegrad_none
  %op_stamp = call ptr @slot_of(ptr %source, ptr %layout, i64 19)
  %op_current = call i1 @is_current(ptr %op_stamp, ptr %layout)
  %op_good = and i1 %whole, %op_current
  %op_value = call ptr @slot_of(ptr %source, ptr %layout, i64 18)
  br i1 %op_good, label %found, label %decline
of_node:
  %node = call ptr @slot_of(ptr %object, ptr %layout, i64 9)
  %missing = icmp eq ptr %node, null
  %freed = icmp eq ptr %node, @livegrad_none
  %no_node = or i1 %missing, %freed
  br i1 %no_node, label %decline, label %there
there:
  %op = call ptr @slot_of(ptr %node, ptr %layout, i64 10)
  %is_input = call i1 @is_word(ptr %op, ptr %layout, i64 3)
  br i1 %is_input, label %of_input, label %of_computed
of_input:
  %attributes = call ptr @slot_of(ptr %node, ptr %layout, i64 11)
  %pair = call ptr @load_at(ptr %attributes, i64 $tuple_items)
  %key_offset = add i64 $tuple_items, 8
  %key = call ptr @load_at(ptr %pair, i64 %key_offset)
  %key_type = call ptr @load_at(ptr %key, i64 $type)
  %is_leaf = call i1 @is_word(ptr %key_type, ptr %layout, i64 1)
  br i1 %is_leaf, label %of_leaf, label %decline
of_leaf:
  %ancestors = call ptr @slot_of(ptr %key, ptr %layout, i64 13)
  %given = call i1 @is_word(ptr %ancestors, ptr %layout, i64 4)
  %data = call ptr @slot_of(ptr %key, ptr %layout, i64 14)
  br i1 %given, label %found, label %decline
of_computed:
  %cell = call ptr @slot_of(ptr %node, ptr %layout, i64 12)
  %no_cell = icmp eq ptr %cell, @livegrad_none
  br i1 %no_cell, label %decline, label %of_cell
of_cell:
  %stamp = call ptr @slot_of(ptr %cell, ptr %layout, i64 17)
  %current = call i1 @is_current(ptr %stamp, ptr %layout)
  %volatile = call ptr @slot_of(ptr %cell, ptr %layout, i64 16)
  %stays = icmp eq ptr %volatile, @livegrad_false
  %cell_good = and i1 %current, %stays
  %cell_value = call ptr @slot_of(ptr %cell, ptr %layout, i64 15)
  br i1 %cell_good, label %found, label %decline
found: ; a value that is not there is None
  %array = phi ptr [ %source, %of_deferred ], [ %op_value, %of_op ], [ %data, %of_leaf ], [ %cell_value, %of_cell ]
  %on_host = call i1 @is_array(ptr %array)
  br i1 %on_host, label %give, label %decline
give:
  ret ptr %array
decline:
  ret ptr null
}

define internal ptr @array_of(ptr %object, ptr %layout, i64 %source) {
entry:
  %is_array = call i1 @is_array(ptr %object)
  br i1 %is_array, label %array, label %other
array:
  %takes_arrays = icmp ule i64 %source, 1
  %result = select i1 %takes_arrays, ptr %object, ptr null
  ret ptr %result
other:
  %no_layout = icmp eq ptr %layout, null
  %not_handle = icmp ne i64 %source, 2
  %skip = or i1 %no_layout, %not_handle
  br i1 %skip, label %decline, label %compare
compare:
  %type = call ptr @load_at(ptr %object, i64 $type)
  %type_word = ptrtoint ptr %type to i64
  %handle_word = load i64, ptr %layout
  %is_handle = icmp eq i64 %type_word, %handle_word
  br i1 %is_handle, label %handle, label %decline
handle:
  %found = call ptr @array_of_handle(ptr %object, ptr %layout)
  ret ptr %found
decline:
  ret ptr null
}

; Whether an array has the element type and shape of an argument, and lies in one piece.
define internal i1 @array_fits(ptr %array, ptr %record) {
entry:
  %dtype = call ptr @load_at(ptr %array, i64 $array_dtype)
  %dtype_word = ptrtoint ptr %dtype to i64
  %wanted_dtype = call i64 @word_at(ptr %record, i64 2)
  %same_dtype = icmp eq i64 %dtype_word, %wanted_dtype
  %flags_place = getelementptr i8, ptr %array, i64 $array_flags
  %flags = load i32, ptr %flags_place
  %dense_flags = and i32 %flags, 257
  %dense = icmp eq i32 %dense_flags, 257
  %rank_place = getelementptr i8, ptr %array, i64 $array_rank
  %rank32 = load i32, ptr %rank_place
  %rank = sext i32 %rank32 to i64
  %wanted_rank = call i64 @word_at(ptr %record, i64 3)
  %same_rank = icmp eq i64 %rank, %wanted_rank
  %fine0 = and i1 %same_dtype, %dense
  %fine = and i1 %fine0, %same_rank
  %sizes = call ptr @load_at(ptr %array, i64 $array_shape)
  %wanted_place = getelementptr i64, ptr %record, i64 4
  %wanted_sizes = load ptr, ptr %wanted_place
  br i1 %fine, label %check, label %refuse
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %rank
  br i1 %more, label %compare, label %accept
compare:
  %size = call i64 @word_at(ptr %sizes, i64 %n)
  %wanted = call i64 @word_at(ptr %wanted_sizes, i64 %n)
  %same = icmp eq i64 %size, %wanted
  br i1 %same, label %next, label %refuse
next:
  %n1 = add i64 %n, 1
  br label %check
accept:
  ret i1 true
refuse:
  ret i1 false
}

; Reads a Python number for an argument without dimensions: its bits go to %bits. Returns 0 if it is none that fits.
; The element is 1 for float64, 2 for float32, 3 for int64.
define internal i1 @read_number(ptr %object, i64 %element, ptr %bits) {
entry:
  %overflow = alloca i32
  %type = call ptr @load_at(ptr %object, i64 $type)
  %is_float = icmp eq ptr %type, @livegrad_float
  %is_int = icmp eq ptr %type, @livegrad_int
  %wants_int = icmp eq i64 %element, 3
  %int_case = and i1 %is_int, %wants_int
  br i1 %int_case, label %int, label %not_int
int:
  %integer = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %lost = load i32, ptr %overflow
  %fits = icmp eq i32 %lost, 0
  store i64 %integer, ptr %bits
  ret i1 %fits
not_int:
  %wants_double = icmp eq i64 %element, 1
  %wants_single = icmp eq i64 %element, 2
  %wants_float = or i1 %wants_double, %wants_single
  %float_case = and i1 %is_float, %wants_float
  br i1 %float_case, label %float, label %refuse
float:
  %double = call double @PyFloat_AsDouble(ptr %object)
  br i1 %wants_double, label %wide, label %narrow
wide:
  store double %double, ptr %bits
  ret i1 true
narrow: ; a number that becomes infinite is left to NumPy, which warns
  %single = fptrunc double %double to float
  store float %single, ptr %bits
  %single_bits = bitcast float %single to i32
  %single_size = and i32 %single_bits, 2147483647
  %infinite = icmp eq i32 %single_size, 2139095040
  %double_bits = bitcast double %double to i64
  %double_size = and i64 %double_bits, 9223372036854775807
  %was_infinite = icmp eq i64 %double_size, 9218868437227405312
  %finite = xor i1 %infinite, true
  %kept = or i1 %finite, %was_infinite
  ret i1 %kept
refuse:
  ret i1 false
}

; Reads all arguments: arrays go to %arrays (null for numbers), the bits of numbers to %numbers. 0: declined.
define internal i1 @read_arguments(ptr %args, i64 %count, ptr %records, ptr %layout, ptr %arrays, ptr %numbers) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %accept
one:
  %object_place = getelementptr ptr, ptr %args, i64 %n
  %object = load ptr, ptr %object_place
  %record = getelementptr [10 x i64], ptr %records, i64 %n
  %array_place = getelementptr ptr, ptr %arrays, i64 %n
  store ptr null, ptr %array_place
  %source = call i64 @word_at(ptr %record, i64 0)
  %element = call i64 @word_at(ptr %record, i64 1)
  %may_be_number = icmp ne i64 %element, 0
  %takes_any = icmp eq i64 %source, 0
  %takes_numbers = icmp eq i64 %source, 3
  %takes = or i1 %takes_any, %takes_numbers
  %try_number = and i1 %may_be_number, %takes
  br i1 %try_number, label %number, label %array
number:
  %bits = getelementptr i64, ptr %numbers, i64 %n
  %read = call i1 @read_number(ptr %object, i64 %element, ptr %bits)
  br i1 %read, label %next, label %array
array:
  %found = call ptr @array_of(ptr %object, ptr %layout, i64 %source)
  %none = icmp eq ptr %found, null
  br i1 %none, label %refuse, label %compare
compare:
  store ptr %found, ptr %array_place
  %fits = call i1 @array_fits(ptr %found, ptr %record)
  br i1 %fits, label %next, label %refuse
next:
  %n1 = add i64 %n, 1
  br label %check
accept:
  ret i1 true
refuse:
  ret i1 false
}
"""

_MEMORY = """
define internal void @copy_item(ptr %target, ptr %source, i64 %bytes) {
  switch i64 %bytes, label %bytes8 [ i64 1, label %bytes1
                                     i64 2, label %bytes2
                                     i64 4, label %bytes4
                                     i64 16, label %bytes16 ]
bytes1:
  %v1 = load i8, ptr %source, align 1
  store i8 %v1, ptr %target, align 1
  ret void
bytes2:
  %v2 = load i16, ptr %source, align 1
  store i16 %v2, ptr %target, align 1
  ret void
bytes4:
  %v4 = load i32, ptr %source, align 1
  store i32 %v4, ptr %target, align 1
  ret void
bytes8:
  %v8 = load i64, ptr %source, align 1
  store i64 %v8, ptr %target, align 1
  ret void
bytes16:
  %v16 = load i128, ptr %source, align 1
  store i128 %v16, ptr %target, align 1
  ret void
}

; Writes an address, each time with its own offset, to the argument slots that want it.
define internal void @patch(ptr %address, ptr %record, i64 %first) {
entry:
  %start = ptrtoint ptr %address to i64
  %list_word = call i64 @word_at(ptr %record, i64 %first)
  %list = inttoptr i64 %list_word to ptr
  %count_index = add i64 %first, 1
  %count = call i64 @word_at(ptr %record, i64 %count_index)
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %pair = getelementptr [2 x i64], ptr %list, i64 %n
  %slot = load ptr, ptr %pair
  %offset = call i64 @word_at(ptr %pair, i64 1)
  %word = add i64 %start, %offset
  store i64 %word, ptr %slot
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

define internal void @fill_slots(i64 %count, ptr %records, ptr %arrays, ptr %numbers) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %record = getelementptr [10 x i64], ptr %records, i64 %n
  %array_place = getelementptr ptr, ptr %arrays, i64 %n
  %array = load ptr, ptr %array_place
  %bits = getelementptr i64, ptr %numbers, i64 %n
  %is_number = icmp eq ptr %array, null
  br i1 %is_number, label %with_source, label %array_data
array_data:
  %data = call ptr @load_at(ptr %array, i64 $array_data)
  br label %with_source
with_source:
  %source = phi ptr [ %bits, %one ], [ %data, %array_data ]
  %cell_place = getelementptr i64, ptr %record, i64 7
  %cell = load ptr, ptr %cell_place
  %no_cell = icmp eq ptr %cell, null
  br i1 %no_cell, label %addresses, label %copy
copy:
  %item_bytes = call i64 @word_at(ptr %record, i64 8)
  call void @copy_item(ptr %cell, ptr %source, i64 %item_bytes)
  br label %next
addresses:
  call void @patch(ptr %source, ptr %record, i64 5)
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}
"""

_RESULTS = """
; A fresh array for each result, in %results; 0 with an exception.
define internal i1 @make_results(i64 %count, ptr %records, ptr %results) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %accept
one:
  %record = getelementptr [6 x i64], ptr %records, i64 %n
  %maker = load ptr, ptr %record
  %small = icmp eq ptr %maker, null
  br i1 %small, label %fresh, label %pooled
fresh:
  %dtype_place = getelementptr i64, ptr %record, i64 1
  %dtype = load ptr, ptr %dtype_place
  %rank = call i64 @word_at(ptr %record, i64 2)
  %rank32 = trunc i64 %rank to i32
  %sizes_place = getelementptr i64, ptr %record, i64 3
  %sizes = load ptr, ptr %sizes_place
  call void @Py_IncRef(ptr %dtype) ; NumPy takes the reference
  %new = call ptr @numpy_new_from_descr(ptr @livegrad_ndarray, ptr %dtype, i32 %rank32, ptr %sizes, ptr null, ptr null,
                                        i32 0, ptr null)
  br label %made
pooled:
  %block = call ptr @PyObject_CallNoArgs(ptr %maker)
  br label %made
made:
  %array = phi ptr [ %new, %fresh ], [ %block, %pooled ]
  %place = getelementptr ptr, ptr %results, i64 %n
  store ptr %array, ptr %place
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %drop, label %next
next:
  %n1 = add i64 %n, 1
  br label %check
drop:
  call void @drop(i64 %n, ptr %results)
  ret i1 false
accept:
  ret i1 true
}

; Lets go of objects; there may be null among them.
define internal void @drop(i64 %count, ptr %objects) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %place = getelementptr ptr, ptr %objects, i64 %n
  %object = load ptr, ptr %place
  call void @Py_DecRef(ptr %object)
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

define internal void @hold(i64 %count, ptr %objects) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %place = getelementptr ptr, ptr %objects, i64 %n
  %object = load ptr, ptr %place
  call void @Py_IncRef(ptr %object)
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

; Tells kernels where the results are; with %frozen nobody can write to them after that.
define internal void @give_results(i64 %count, ptr %records, ptr %results, i1 %frozen) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %record = getelementptr [6 x i64], ptr %records, i64 %n
  %place = getelementptr ptr, ptr %results, i64 %n
  %array = load ptr, ptr %place
  %data = call ptr @load_at(ptr %array, i64 $array_data)
  call void @patch(ptr %data, ptr %record, i64 4)
  br i1 %frozen, label %freeze, label %next
freeze:
  %flags_place = getelementptr i8, ptr %array, i64 $array_flags
  %flags = load i32, ptr %flags_place
  %read_only = and i32 %flags, -1025
  store i32 %read_only, ptr %flags_place
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

; The only result, or a list of several.
define internal ptr @return_results(i64 %count, ptr %results) {
entry:
  %single = icmp eq i64 %count, 1
  br i1 %single, label %one, label %several
one:
  %array = load ptr, ptr %results
  ret ptr %array
several:
  %list = call ptr @PyList_New(i64 %count)
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %drop, label %check
drop:
  call void @drop(i64 %count, ptr %results)
  ret ptr null
check:
  %n = phi i64 [ 0, %several ], [ %n1, %put ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %put, label %finish
put:
  %place = getelementptr ptr, ptr %results, i64 %n
  %item = load ptr, ptr %place
  %done = call i32 @PyList_SetItem(ptr %list, i64 %n, ptr %item)
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret ptr %list
}
"""

_RUN = """
; Runs segments: (records, their count, whether an interrupt may end the run, status word). Returns 0; 1 if a check
; failed; -1 with an exception.
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
  %status_place = getelementptr i64, ptr %segment, i64 3
  %status = load ptr, ptr %status_place
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
  br i1 %raised, label %raise, label %raise_own
raise_own:
  call void @PyErr_SetNone(ptr @livegrad_keyboard_interrupt)
  br label %raise
raise: ; a check that failed before the interrupt is no business of the next run
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

; Takes the lock of a plan. One whose kernels never let go of the GIL needs only to know that nobody else is at it.
; Returns 0 if it is taken, -1 with an exception.
define internal i32 @enter_plan(ptr %ask, i1 %asks_only) {
entry:
  br i1 %asks_only, label %ask_only, label %take
ask_only:
  %locked = call ptr @PyObject_CallNoArgs(ptr %ask)
  %free = icmp eq ptr %locked, @livegrad_false
  br label %answer
take:
  %taken = call ptr @PyObject_CallOneArg(ptr %ask, ptr @livegrad_false)
  %got = icmp eq ptr %taken, @livegrad_true
  br label %answer
answer:
  %object = phi ptr [ %locked, %ask_only ], [ %taken, %take ]
  %yes = phi i1 [ %free, %ask_only ], [ %got, %take ]
  %failed = icmp eq ptr %object, null
  br i1 %failed, label %raise, label %finish
raise:
  ret i32 -1
finish:
  call void @Py_DecRef(ptr %object)
  %result = zext i1 %yes to i32
  ret i32 %result
}

define ptr @py_run_plan(ptr %self, ptr %args, i64 %given) {
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
  %ask_place = getelementptr i64, ptr %table, i64 3
  %ask = load ptr, ptr %ask_place
  %release_place = getelementptr i64, ptr %table, i64 4
  %release = load ptr, ptr %release_place
  %asks_only = icmp eq ptr %release, null
  %layout_place = getelementptr i64, ptr %table, i64 5
  %layout = load ptr, ptr %layout_place
  %freeze = call i64 @word_at(ptr %table, i64 6)
  %frozen = icmp ne i64 %freeze, 0
  %argument_place = getelementptr i64, ptr %table, i64 7
  %argument_records = load ptr, ptr %argument_place
  %result_place = getelementptr i64, ptr %table, i64 8
  %result_records = load ptr, ptr %result_place
  %complete = icmp eq i64 %given, %count
  br i1 %complete, label %read, label %decline
read:
  %fits = call i1 @read_arguments(ptr %args, i64 %count, ptr %argument_records, ptr %layout, ptr %arrays, ptr %numbers)
  br i1 %fits, label %make, label %decline
make: ; what follows may run other code, which could let go of the arrays
  call void @hold(i64 %count, ptr %arrays)
  %made = call i1 @make_results(i64 %result_count, ptr %result_records, ptr %results)
  br i1 %made, label %enter, label %raise_early
enter:
  %entered = call i32 @enter_plan(ptr %ask, i1 %asks_only)
  %is_free = icmp eq i32 %entered, 1
  br i1 %is_free, label %run, label %drop
run:
  call void @fill_slots(i64 %count, ptr %argument_records, ptr %arrays, ptr %numbers)
  call void @give_results(i64 %result_count, ptr %result_records, ptr %results, i1 %frozen)
  %segment_count = call i64 @word_at(ptr %table, i64 2)
  %segment_place = getelementptr i64, ptr %table, i64 9
  %segments = load ptr, ptr %segment_place
  %main_thread = call i64 @word_at(ptr %table, i64 10)
  %state = call i32 @run_segments(i64 %segment_count, ptr %segments, i64 %main_thread)
  br i1 %asks_only, label %left, label %leave
leave: ; nothing may be called while an exception is set
  %had_error = icmp slt i32 %state, 0
  br i1 %had_error, label %leave_with_error, label %leave_plainly
leave_with_error:
  call void @PyErr_Fetch(ptr %error_type, ptr %error_value, ptr %error_traceback)
  %released0 = call ptr @PyObject_CallNoArgs(ptr %release)
  call void @Py_DecRef(ptr %released0)
  %e0 = load ptr, ptr %error_type
  %e1 = load ptr, ptr %error_value
  %e2 = load ptr, ptr %error_traceback
  call void @PyErr_Restore(ptr %e0, ptr %e1, ptr %e2)
  br label %left
leave_plainly:
  %released1 = call ptr @PyObject_CallNoArgs(ptr %release)
  call void @Py_DecRef(ptr %released1)
  br label %left
left:
  %good = icmp eq i32 %state, 0
  br i1 %good, label %finish, label %drop
finish:
  call void @drop(i64 %count, ptr %arrays)
  %answer = call ptr @return_results(i64 %result_count, ptr %results)
  ret ptr %answer
drop:
  %why = phi i32 [ %entered, %enter ], [ %state, %left ]
  call void @drop(i64 %result_count, ptr %results)
  call void @drop(i64 %count, ptr %arrays)
  %failed = icmp slt i32 %why, 0
  br i1 %failed, label %raise, label %decline
raise_early:
  call void @drop(i64 %count, ptr %arrays)
  br label %raise
raise:
  ret ptr null
decline:
  %none = call ptr @return_none()
  ret ptr %none
}
"""


def plan_call_ir(layout: ObjectLayout) -> str:
    """Return the IR of `run_plan` for objects of this layout."""
    text = Template("".join((_ARGUMENTS, _MEMORY, _RESULTS, _RUN)))
    return _DECLARATIONS + text.substitute(asdict(layout))
