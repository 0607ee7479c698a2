"""Node graphs: immutable assemblies of functions made of nodes, and conversion to and from the value IR."""
