"""Matrix products and convolutions as LLVM IR: packing, register tiles, blocks, and their launches."""
