"""The machine side of the CPU backend: LLVM IR text in, callable addresses out, and a thread pool that runs them.

Comes in: IR text and argument words from the kernel emitter and the plan executor. Called by `runtime.cpu` only.
"""
