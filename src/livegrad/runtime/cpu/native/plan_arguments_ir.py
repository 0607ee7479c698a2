"""LLVM IR that reads the arguments of a plan's built-in: arrays, tensor handles, and numbers.

In: Python objects, and a record for each argument (`plan_call.py`): its accepted kind, the code of its number type, its
dtype, rank and shape. Out: arrays, and the bits of numbers; 0 if an argument does not match, in which case the built-in
declines the call. `plan_call_ir.py` fills in the layout of objects.
"""

# %source is the accepted kind: 0 any, 1 arrays, 2 handles, 3 numbers.
READ_ARGUMENTS = """
define internal ptr @load_at(ptr %object, i64 %offset) alwaysinline {
  %slot = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %slot
  ret ptr %value
}

define internal i64 @word_at(ptr %table, i64 %index) alwaysinline {
  %slot = getelementptr i64, ptr %table, i64 %index
  %value = load i64, ptr %slot
  ret i64 %value
}

define internal i1 @is_array(ptr %object) alwaysinline {
  %type = call ptr @load_at(ptr %object, i64 $type)
  %exact = icmp eq ptr %type, @livegrad_ndarray
  ret i1 %exact
}

; Loads the member of %object whose offset is word %index of the layout.
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

; Whether a value with this stamp is still valid: no leaf has changed since, and no gradient is being recorded.
define internal i1 @is_current(ptr %stamp, ptr %layout) alwaysinline {
  %clock_word = call i64 @word_at(ptr %layout, i64 5)
  %clock = inttoptr i64 %clock_word to ptr
  %now = call ptr @slot_of(ptr %clock, ptr %layout, i64 20)
  %same = icmp eq ptr %stamp, %now
  %count_word = call i64 @word_at(ptr %layout, i64 6)
  %count_slot = inttoptr i64 %count_word to ptr
  %count = load i64, ptr %count_slot
  %none = icmp eq i64 %count, 0
  %current = and i1 %same, %none
  ret i1 %current
}

; The array of a tensor handle; null if it has none yet. There are four cases: data without a node, a deferred op that
; has run, the data of a leaf, and the value of a node that has run. `native_handles.py` defines the layout's words.
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
  %has_node = icmp eq ptr %deferred, @livegrad_none
  br i1 %has_node, label %of_node, label %of_deferred
of_deferred:
  %source = call ptr @load_at(ptr %deferred, i64 $tuple_items)
  %source_type = call ptr @load_at(ptr %source, i64 $type)
  %is_op = call i1 @is_word(ptr %source_type, ptr %layout, i64 2)
  br i1 %is_op, label %of_op, label %check
of_op:
  %second = add i64 $tuple_items, 8
  %index = call ptr @load_at(ptr %deferred, i64 %second)
  %whole = icmp eq ptr %index, @livegrad_none
  %op_stamp = call ptr @slot_of(ptr %source, ptr %layout, i64 19)
  %op_current = call i1 @is_current(ptr %op_stamp, ptr %layout)
  %op_good = and i1 %whole, %op_current
  %op_value = call ptr @slot_of(ptr %source, ptr %layout, i64 18)
  br i1 %op_good, label %check, label %decline
of_node:
  %node = call ptr @slot_of(ptr %object, ptr %layout, i64 9)
  %missing = icmp eq ptr %node, null
  %freed = icmp eq ptr %node, @livegrad_none
  %no_node = or i1 %missing, %freed
  br i1 %no_node, label %decline, label %node_exists
node_exists:
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
  %has_data = call i1 @is_word(ptr %ancestors, ptr %layout, i64 4)
  %data = call ptr @slot_of(ptr %key, ptr %layout, i64 14)
  br i1 %has_data, label %check, label %decline
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
  br i1 %cell_good, label %check, label %decline
check: ; without a value, this is None and not an array
  %array = phi ptr [ %source, %of_deferred ], [ %op_value, %of_op ], [ %data, %of_leaf ], [ %cell_value, %of_cell ]
  %on_host = call i1 @is_array(ptr %array)
  br i1 %on_host, label %accept, label %decline
accept:
  ret ptr %array
decline:
  ret ptr null
}

; The array of an argument: the object, or the array of a handle; null if its kind is not accepted.
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
  %handle_array = call ptr @array_of_handle(ptr %object, ptr %layout)
  ret ptr %handle_array
decline:
  ret ptr null
}

; Whether an array has the element type and shape of an argument, and is C-contiguous and aligned (flags 1 and 256).
define internal i1 @array_fits(ptr %array, ptr %record) {
entry:
  %dtype = call ptr @load_at(ptr %array, i64 $array_dtype)
  %dtype_word = ptrtoint ptr %dtype to i64
  %expected_dtype = call i64 @word_at(ptr %record, i64 2)
  %same_dtype = icmp eq i64 %dtype_word, %expected_dtype
  %flags_slot = getelementptr i8, ptr %array, i64 $array_flags
  %flags = load i32, ptr %flags_slot
  %dense_flags = and i32 %flags, 257
  %dense = icmp eq i32 %dense_flags, 257
  %rank_slot = getelementptr i8, ptr %array, i64 $array_rank
  %rank32 = load i32, ptr %rank_slot
  %rank = sext i32 %rank32 to i64
  %expected_rank = call i64 @word_at(ptr %record, i64 3)
  %same_rank = icmp eq i64 %rank, %expected_rank
  %matches0 = and i1 %same_dtype, %dense
  %matches = and i1 %matches0, %same_rank
  %sizes = call ptr @load_at(ptr %array, i64 $array_shape)
  %expected_sizes_slot = getelementptr i64, ptr %record, i64 4
  %expected_sizes = load ptr, ptr %expected_sizes_slot
  br i1 %matches, label %check, label %refuse
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %rank
  br i1 %more, label %compare, label %accept
compare:
  %size = call i64 @word_at(ptr %sizes, i64 %n)
  %expected = call i64 @word_at(ptr %expected_sizes, i64 %n)
  %same = icmp eq i64 %size, %expected
  br i1 %same, label %next, label %refuse
next:
  %n1 = add i64 %n, 1
  br label %check
accept:
  ret i1 true
refuse:
  ret i1 false
}

; Stores the bits of a Python number to %bits. Returns 0 if it is not a number of the element type (1: float64,
; 2: float32, 3: int64), or is out of range.
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
narrow: ; declines numbers that overflow to infinity, so that NumPy warns
  %single = fptrunc double %double to float
  store float %single, ptr %bits
  %single_bits = bitcast float %single to i32
  %single_size = and i32 %single_bits, 2147483647
  %infinite = icmp eq i32 %single_size, 2139095040
  %double_bits = bitcast double %double to i64
  %double_size = and i64 %double_bits, 9223372036854775807
  %was_infinite = icmp eq i64 %double_size, 9218868437227405312
  %finite = xor i1 %infinite, true
  %is_exact_infinity_or_finite = or i1 %finite, %was_infinite
  ret i1 %is_exact_infinity_or_finite
refuse:
  ret i1 false
}

; Reads all arguments: stores arrays to %arrays (null for numbers), and the bits of numbers to %numbers. Returns 0 to
; decline the call.
define internal i1 @read_arguments(ptr %args, i64 %count, ptr %records, ptr %layout, ptr %arrays, ptr %numbers) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %accept
one:
  %object_slot = getelementptr ptr, ptr %args, i64 %n
  %object = load ptr, ptr %object_slot
  %record = getelementptr [10 x i64], ptr %records, i64 %n
  %array_slot = getelementptr ptr, ptr %arrays, i64 %n
  store ptr null, ptr %array_slot
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
  %array_object = call ptr @array_of(ptr %object, ptr %layout, i64 %source)
  %none = icmp eq ptr %array_object, null
  br i1 %none, label %refuse, label %compare
compare:
  store ptr %array_object, ptr %array_slot
  %fits = call i1 @array_fits(ptr %array_object, ptr %record)
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
