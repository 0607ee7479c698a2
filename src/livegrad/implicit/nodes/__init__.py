"""Node graphs: assemblies of functions made of nodes, edited safely, and their way to and from the value IR."""
