"""The description of a live graph: blocks with pins, regions, states, and the sources of pins. Executes nothing.

`block.py` has blocks and pins, `block_graph.py` the graph that users edit, `edges.py` and `sources.py` what feeds an
input. `composite.py` uses a graph as a block, `regions.py` is control flow, `append_buffer.py` and `captured_call.py`
are other kinds of blocks. `journal.py` notes each edit for the next frame.
"""
