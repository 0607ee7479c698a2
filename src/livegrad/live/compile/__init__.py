"""The graph compiler: flatten, sort, propagate shapes, wire, share memory. A description goes in, a plan comes out."""
