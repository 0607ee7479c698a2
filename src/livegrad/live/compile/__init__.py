"""The graph compiler: flatten, sort, propagate shapes, wire, share memory. It turns a graph into a plan."""
