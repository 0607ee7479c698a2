"""Tensor programs on a GPU: livegrad beside JAX and PyTorch, each in its own process: `./bench tensors-gpu`."""
