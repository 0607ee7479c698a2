"""Closed triangle meshes of parts: manifold dual contouring, merging of cells, and checks for thin walls."""
