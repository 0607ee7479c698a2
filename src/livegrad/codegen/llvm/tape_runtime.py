"""The run-time support of tapes as LLVM IR: a growable arena, and functions that return the slot of an iteration.

Appended to kernels that use tapes (`kernel_module.py`).
"""

# A tape is a header {slots, capacity}. Its memory comes from an arena of chunks {next, size, used} that is emptied for
# each group of lanes and freed when the kernel returns. An empty header reads as zeros.
# Short chunks grow fourfold, so that the last one is most of the memory: glibc returns the top of its heap to the
# system if that is more than twice the largest block freed, and then each run would wait for fresh pages.
# The arena itself is {chunk, bytes allocated, address of the status word, status to write above the limit}. The run
# then ends with an error, because loops of a kernel with tapes also end when its status word reports a failure.
MOST_BYTES = 1 << 32
# If the system has no memory, the run ends in the same way. Until its loops end, tapes keep their capacity, and all
# slots past it are one reserve whose contents are not used.
TOO_MUCH = "the tape of a loop's derivative needs more than 4 GiB on one thread, or more than the available memory"

_RUNTIME = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

@lg_reserve = internal global [RESERVE x i8] zeroinitializer, align 64

define internal void @lg_arena_report(ptr %arena) noinline cold nounwind {
  %status.at = getelementptr ptr, ptr %arena, i64 2
  %status = load ptr, ptr %status.at
  %site.at = getelementptr i64, ptr %arena, i64 3
  %site = load i64, ptr %site.at
  %known = atomicrmw umin ptr %status, i64 %site monotonic
  ret void
}

; Null if there is no memory.
define internal ptr @lg_arena_take(ptr %arena, i64 %bytes) noinline nounwind {
entry:
  %chunk = load ptr, ptr %arena
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %grow, label %look
look:
  %size.at = getelementptr i64, ptr %chunk, i64 1
  %used.at = getelementptr i64, ptr %chunk, i64 2
  %size = load i64, ptr %size.at
  %used = load i64, ptr %used.at
  %end = add i64 %used, %bytes
  %fits = icmp ule i64 %end, %size
  br i1 %fits, label %take, label %grow
grow:
  %last = phi i64 [ 32768, %entry ], [ %size, %look ]
  %is.short = icmp ult i64 %last, 4194304
  %factor = select i1 %is.short, i64 2, i64 1
  %more.than.last = shl i64 %last, %factor
  %small = icmp ult i64 %more.than.last, %bytes
  %wanted = select i1 %small, i64 %bytes, i64 %more.than.last
  %taken.at = getelementptr i64, ptr %arena, i64 1
  %taken = load i64, ptr %taken.at
  %more = add i64 %taken, %wanted
  store i64 %more, ptr %taken.at
  %over = icmp ugt i64 %more, LIMIT
  br i1 %over, label %report, label %allocate
report:
  call void @lg_arena_report(ptr %arena)
  br label %allocate
allocate:
  %whole = add i64 %wanted, 128
  %long = call ptr @malloc(i64 %whole)
  %none.long = icmp eq ptr %long, null
  br i1 %none.long, label %retry, label %use
retry:
  %least = add i64 %bytes, 128
  %short = call ptr @malloc(i64 %least)
  %none.short = icmp eq ptr %short, null
  br i1 %none.short, label %fail, label %use
fail:
  call void @lg_arena_report(ptr %arena)
  ret ptr null
use:
  %fresh = phi ptr [ %long, %allocate ], [ %short, %retry ]
  %room = phi i64 [ %wanted, %allocate ], [ %bytes, %retry ]
  store ptr %chunk, ptr %fresh
  %fresh.size = getelementptr i64, ptr %fresh, i64 1
  store i64 %room, ptr %fresh.size
  %fresh.used = getelementptr i64, ptr %fresh, i64 2
  store i64 0, ptr %fresh.used
  store ptr %fresh, ptr %arena
  br label %take
take:
  %from = phi ptr [ %chunk, %look ], [ %fresh, %use ]
  %start = phi i64 [ %used, %look ], [ 0, %use ]
  %after = add i64 %start, %bytes
  %from.used = getelementptr i64, ptr %from, i64 2
  store i64 %after, ptr %from.used
  %base = ptrtoint ptr %from to i64
  %past = add i64 %base, 127
  %aligned = and i64 %past, -64
  %at = add i64 %aligned, %start
  %memory = inttoptr i64 %at to ptr
  call void @llvm.memset.p0.i64(ptr %memory, i8 0, i64 %bytes, i1 false)
  ret ptr %memory
}

; How much of the current chunk is in use, for a release that frees everything taken since.
define internal i64 @lg_arena_mark(ptr %arena) alwaysinline nounwind {
entry:
  %chunk = load ptr, ptr %arena
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %done, label %read
read:
  %used.at = getelementptr i64, ptr %chunk, i64 2
  %used = load i64, ptr %used.at
  br label %done
done:
  %mark = phi i64 [ 0, %entry ], [ %used, %read ]
  ret i64 %mark
}

; If there is a newer chunk than that of the mark, only that is emptied: all in it is newer than the mark.
define internal void @lg_arena_release(ptr %arena, ptr %marked, i64 %mark) alwaysinline nounwind {
entry:
  %chunk = load ptr, ptr %arena
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %done, label %write
write:
  %same = icmp eq ptr %chunk, %marked
  %used = select i1 %same, i64 %mark, i64 0
  %used.at = getelementptr i64, ptr %chunk, i64 2
  store i64 %used, ptr %used.at
  br label %done
done:
  ret void
}

define internal void @lg_arena_empty(ptr %arena) noinline nounwind {
entry:
  %chunk = load ptr, ptr %arena
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %done, label %keep
keep:
  %used.at = getelementptr i64, ptr %chunk, i64 2
  store i64 0, ptr %used.at
  %older = load ptr, ptr %chunk
  store ptr null, ptr %chunk
  %kept.at = getelementptr i64, ptr %chunk, i64 1
  %kept = load i64, ptr %kept.at
  %taken.at = getelementptr i64, ptr %arena, i64 1
  store i64 %kept, ptr %taken.at
  br label %loop
loop:
  %old = phi ptr [ %older, %keep ], [ %next, %drop ]
  %end = icmp eq ptr %old, null
  br i1 %end, label %done, label %drop
drop:
  %next = load ptr, ptr %old
  call void @free(ptr %old)
  br label %loop
done:
  ret void
}

define internal void @lg_arena_free(ptr %arena) noinline nounwind {
  call void @lg_arena_empty(ptr %arena)
  %chunk = load ptr, ptr %arena
  call void @free(ptr %chunk)
  store ptr null, ptr %arena
  ret void
}

define internal i64 @lg_tape_new(ptr %arena) noinline nounwind {
  %header = call ptr @lg_arena_take(ptr %arena, i64 64)
  %word = ptrtoint ptr %header to i64
  ret i64 %word
}

define internal i64 @lg_tape_ensure(ptr %arena, i64 %word) alwaysinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %make, label %keep
make:
  %fresh = call i64 @lg_tape_new(ptr %arena)
  ret i64 %fresh
keep:
  ret i64 %word
}

define internal i64 @lg_tape_copy(ptr %arena, i64 %word, i64 %bytes) noinline nounwind {
entry:
  %copy = call i64 @lg_tape_new(ptr %arena)
  %none = icmp eq i64 %copy, 0
  %capacity = call i64 @lg_tape_capacity(i64 %word)
  %nothing = icmp eq i64 %capacity, 0
  %empty = or i1 %none, %nothing
  br i1 %empty, label %done, label %make
make:
  %size = mul i64 %capacity, %bytes
  %fresh = call ptr @lg_arena_take(ptr %arena, i64 %size)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %done, label %fill
fill:
  %source = inttoptr i64 %word to ptr
  %old = load ptr, ptr %source
  call void @llvm.memcpy.p0.p0.i64(ptr %fresh, ptr %old, i64 %size, i1 false)
  %header = inttoptr i64 %copy to ptr
  store ptr %fresh, ptr %header
  %capacity.at = getelementptr i64, ptr %header, i64 1
  store i64 %capacity, ptr %capacity.at
  br label %done
done:
  ret i64 %copy
}

define internal i64 @lg_tape_capacity(i64 %word) noinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %empty, label %read
empty:
  ret i64 0
read:
  %header = inttoptr i64 %word to ptr
  %capacity.at = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %capacity.at
  ret i64 %capacity
}

define internal ptr @lg_tape_slot(ptr %arena, i64 %word, i64 %index, i64 %bytes) alwaysinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %nothing, label %look
nothing:
  %zeros = call ptr @lg_arena_take(ptr %arena, i64 %bytes)
  %no.zeros = icmp eq ptr %zeros, null
  br i1 %no.zeros, label %lost, label %found
look:
  %header = inttoptr i64 %word to ptr
  %capacity.at = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %capacity.at
  %fits = icmp slt i64 %index, %capacity
  br i1 %fits, label %known, label %grow
grow:
  %grown = call i1 @lg_tape_grow(ptr %arena, ptr %header, i64 %index, i64 %bytes)
  br i1 %grown, label %known, label %lost
lost:
  br label %found
known:
  %data = load ptr, ptr %header
  %offset = mul i64 %index, %bytes
  %slot = getelementptr i8, ptr %data, i64 %offset
  br label %found
found:
  %result = phi ptr [ %zeros, %nothing ], [ %slot, %known ], [ @lg_reserve, %lost ]
  ret ptr %result
}

; The slots of a tape with room for so many; null if there is no memory.
define internal ptr @lg_tape_rows(ptr %arena, i64 %word, i64 %count, i64 %bytes) noinline nounwind {
entry:
  %none = icmp eq i64 %word, 0
  br i1 %none, label %lost, label %look
look:
  %header = inttoptr i64 %word to ptr
  %capacity.at = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %capacity.at
  %fits = icmp sle i64 %count, %capacity
  br i1 %fits, label %known, label %limit
limit:
  %endless = icmp ugt i64 %count, LIMIT
  br i1 %endless, label %report, label %grow
report:
  call void @lg_arena_report(ptr %arena)
  ret ptr null
grow:
  %last = sub i64 %count, 1
  %grown = call i1 @lg_tape_grow(ptr %arena, ptr %header, i64 %last, i64 %bytes)
  br i1 %grown, label %known, label %lost
known:
  %data = load ptr, ptr %header
  ret ptr %data
lost:
  ret ptr null
}

; Whether there is room for the index now.
define internal i1 @lg_tape_grow(ptr %arena, ptr %header, i64 %index, i64 %bytes) noinline cold nounwind {
entry:
  %capacity.at = getelementptr i64, ptr %header, i64 1
  %capacity = load i64, ptr %capacity.at
  %twice = shl i64 %capacity, 1
  %least = add i64 %index, 8
  %small = icmp slt i64 %twice, %least
  %slots = select i1 %small, i64 %least, i64 %twice
  %size = mul i64 %slots, %bytes
  %fresh = call ptr @lg_arena_take(ptr %arena, i64 %size)
  %failed = icmp eq ptr %fresh, null
  br i1 %failed, label %fail, label %move
move:
  %old = load ptr, ptr %header
  %held = mul i64 %capacity, %bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %fresh, ptr %old, i64 %held, i1 false)
  store ptr %fresh, ptr %header
  store i64 %slots, ptr %capacity.at
  ret i1 true
fail:
  ret i1 false
}
"""


def runtime_module(largest_slot: int) -> str:
    """The run-time functions, for tapes with slots of at most `largest_slot` bytes."""
    return _RUNTIME.replace("LIMIT", str(MOST_BYTES)).replace("RESERVE", str(max(64, largest_slot)))
