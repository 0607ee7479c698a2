"""Closed triangle meshes of parts: manifold dual contouring, joined cells, checks for thin walls."""
