"""The description of a live graph: blocks with pins, regions, states, and the sources of pins. Executes nothing."""
