"""A kernel that runs a chain of kernels for each block of rows (producer–consumer tiling). Its argument block names
them. Called when a plan with chains of steps is bound.

Each worker has its own copies of the argument blocks, because the addresses of intermediate results differ between
workers and blocks: a member that works on block 5 counts from the first row.
"""

from __future__ import annotations

from functools import lru_cache

from livegrad.codegen.llvm.vector_builder import Text, kernel_text
from livegrad.runtime.cpu.native.llvm_jit import NativeFunction, compile_kernel

# The argument block: HEADER words, MEMBER words for each member, PATCH words for each address that changes.
HEADER = ("members", "patches", "scratch", "scratch_bytes")
MEMBER = ("code", "block", "words", "items", "total", "copy")  # items of a block; where the copy lies, in bytes
PATCH = ("word", "place", "step")  # bytes: where the word lies, what it points to, and how far rows move it for a block
LIBRARY = "chain"


@lru_cache(maxsize=1)
def chain_library() -> NativeFunction:
    """The kernel `run_chain`; it stays for the process's life."""
    made = compile_kernel(_text(), "run_chain", speed=1)
    made.make_immortal()
    return made


def _text() -> str:
    text = Text()
    members, patches, scratch, scratch_bytes = (_word(text, "%args", str(place)) for place in range(len(HEADER)))
    base = text.moved(text.value(f"inttoptr i64 {scratch} to ptr"), ("%worker", scratch_bytes))
    first_member = text.moved("%args", (str(8 * len(HEADER)), 1))
    first_patch = text.moved(first_member, (members, 8 * len(MEMBER)))
    base_address = text.value(f"ptrtoint ptr {base} to i64")
    with text.loop("0", members, 1) as number:
        member = text.moved(first_member, (number, 8 * len(MEMBER)))
        words, copy = _word(text, member, "2"), text.moved(base, (_word(text, member, "5"), 1))
        block = text.value(f"inttoptr i64 {_word(text, member, '1')} to ptr")
        with text.loop("0", words, 1) as word:
            value = _word(text, block, word)
            text.line(f"store i64 {value}, ptr {text.value(f'getelementptr i64, ptr {copy}, i64 {word}')}")
    with text.loop("%begin", "%end", 1) as block_number:
        with text.loop("0", patches, 1) as number:
            patch = text.moved(first_patch, (number, 8 * len(PATCH)))
            place = text.value(f"add i64 {base_address}, {_word(text, patch, '1')}")
            moved = text.value(f"mul i64 {block_number}, {_word(text, patch, '2')}")
            address = text.value(f"sub i64 {place}, {moved}")
            text.line(f"store i64 {address}, ptr {text.moved(base, (_word(text, patch, '0'), 1))}")
        with text.loop("0", members, 1) as number:
            member = text.moved(first_member, (number, 8 * len(MEMBER)))
            items = _word(text, member, "3")
            first = text.value(f"mul i64 {block_number}, {items}")
            last = text.least(text.value(f"add i64 {first}, {items}"), _word(text, member, "4"))
            copy = text.moved(base, (_word(text, member, "5"), 1))
            code = text.value(f"inttoptr i64 {_word(text, member, '0')} to ptr")
            text.line(f"call void {code}(i64 {first}, i64 {last}, ptr {copy}, i64 %worker)")
    attributes = "attributes #0 = { nounwind }"
    return "\n".join(["declare i64 @llvm.smin.i64(i64, i64)", kernel_text("run_chain", text), attributes])


def _word(text: Text, block: str, place: str) -> str:
    return text.value(f"load i64, ptr {text.value(f'getelementptr i64, ptr {block}, i64 {place}')}")
