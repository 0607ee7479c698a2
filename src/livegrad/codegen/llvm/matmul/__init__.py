"""Matrix products and convolutions as LLVM IR: packing, register tiles, blocks, and their launches.

`product.py` describes a product, `launches.py` cuts it into work items, and `tile_shapes.py` has the sizes of tiles.
`matmul_module.py` emits a kernel from `blocks.py` (macro-kernel), `packing.py` and `matmul_tiles.py` (micro-kernels);
`dot_products.py` and `convolution_module.py` are the other kinds.
"""
