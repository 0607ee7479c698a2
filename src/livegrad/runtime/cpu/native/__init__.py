"""The native layer of the CPU backend: a JIT from LLVM IR to callable addresses, and a thread pool that runs them.

In: LLVM modules and argument slots from the kernel emitter and the plan executor. Used only by `runtime.cpu`.
"""
