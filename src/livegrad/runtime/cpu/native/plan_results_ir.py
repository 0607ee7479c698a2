"""LLVM IR that allocates the results of a plan's built-in and fills the argument slots of its kernels.

In: the arrays and numbers that `plan_arguments_ir.py` has read, and records of the results (`plan_call.py`).
`plan_call_ir.py` fills in the layout of objects.
"""

FILL_SLOTS = """
; Copies one element of 1, 2, 4, 8 or 16 bytes.
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

; Writes an address plus an offset to argument slots. Word %first of the record is the address of a list of slots and
; offsets, the next word its length.
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

; Copies scalar arguments to their cells, and writes the addresses of the others to argument slots.
define internal void @fill_slots(i64 %count, ptr %records, ptr %arrays, ptr %numbers) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %record = getelementptr [10 x i64], ptr %records, i64 %n
  %array_slot = getelementptr ptr, ptr %arrays, i64 %n
  %array = load ptr, ptr %array_slot
  %bits = getelementptr i64, ptr %numbers, i64 %n
  %is_number = icmp eq ptr %array, null
  br i1 %is_number, label %with_source, label %array_data
array_data:
  %data = call ptr @load_at(ptr %array, i64 $array_data)
  br label %with_source
with_source:
  %source = phi ptr [ %bits, %one ], [ %data, %array_data ]
  %cell_slot = getelementptr i64, ptr %record, i64 7
  %cell = load ptr, ptr %cell_slot
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

ALLOCATE_RESULTS = """
; Stores a new array for each result to %results. Returns 0 with an exception.
define internal i1 @allocate_results(i64 %count, ptr %records, ptr %results) {
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
  %dtype_slot = getelementptr i64, ptr %record, i64 1
  %dtype = load ptr, ptr %dtype_slot
  %rank = call i64 @word_at(ptr %record, i64 2)
  %rank32 = trunc i64 %rank to i32
  %sizes_slot = getelementptr i64, ptr %record, i64 3
  %sizes = load ptr, ptr %sizes_slot
  call void @Py_IncRef(ptr %dtype) ; NumPy steals the reference
  %new = call ptr @numpy_new_from_descr(ptr @livegrad_ndarray, ptr %dtype, i32 %rank32, ptr %sizes, ptr null, ptr null,
                                        i32 0, ptr null)
  br label %allocated
pooled:
  %block = call ptr @PyObject_CallNoArgs(ptr %maker)
  br label %allocated
allocated:
  %array = phi ptr [ %new, %fresh ], [ %block, %pooled ]
  %slot = getelementptr ptr, ptr %results, i64 %n
  store ptr %array, ptr %slot
  %failed = icmp eq ptr %array, null
  br i1 %failed, label %drop, label %next
next:
  %n1 = add i64 %n, 1
  br label %check
drop:
  call void @drop_references(i64 %n, ptr %results)
  ret i1 false
accept:
  ret i1 true
}

; Drops references to objects, some of which may be null.
define internal void @drop_references(i64 %count, ptr %objects) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %slot = getelementptr ptr, ptr %objects, i64 %n
  %object = load ptr, ptr %slot
  call void @Py_DecRef(ptr %object)
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

; Takes references to objects, some of which may be null.
define internal void @take_references(i64 %count, ptr %objects) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %one ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %slot = getelementptr ptr, ptr %objects, i64 %n
  %object = load ptr, ptr %slot
  call void @Py_IncRef(ptr %object)
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

; Writes the addresses of the results to argument slots. %frozen makes the arrays read-only.
define internal void @bind_results(i64 %count, ptr %records, ptr %results, i1 %frozen) {
entry:
  br label %check
check:
  %n = phi i64 [ 0, %entry ], [ %n1, %next ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %one, label %finish
one:
  %record = getelementptr [6 x i64], ptr %records, i64 %n
  %slot = getelementptr ptr, ptr %results, i64 %n
  %array = load ptr, ptr %slot
  %data = call ptr @load_at(ptr %array, i64 $array_data)
  call void @patch(ptr %data, ptr %record, i64 4)
  br i1 %frozen, label %freeze, label %next
freeze:
  %flags_slot = getelementptr i8, ptr %array, i64 $array_flags
  %flags = load i32, ptr %flags_slot
  %read_only = and i32 %flags, -1025
  store i32 %read_only, ptr %flags_slot
  br label %next
next:
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret void
}

; Returns the only result, or a list of several.
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
  call void @drop_references(i64 %count, ptr %results)
  ret ptr null
check:
  %n = phi i64 [ 0, %several ], [ %n1, %put ]
  %more = icmp slt i64 %n, %count
  br i1 %more, label %put, label %finish
put:
  %slot = getelementptr ptr, ptr %results, i64 %n
  %item = load ptr, ptr %slot
  %done = call i32 @PyList_SetItem(ptr %list, i64 %n, ptr %item)
  %n1 = add i64 %n, 1
  br label %check
finish:
  ret ptr %list
}
"""
