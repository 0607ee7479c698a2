"""How people write graphs: tensors, functions, assemblies, contexts and blocks."""
