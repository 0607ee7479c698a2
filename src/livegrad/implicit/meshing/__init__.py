"""Closed triangle meshes of parts: manifold dual contouring, merging of cells, and checks for thin walls.

`meshing.py` meshes a part on the lattice that `feature_size.py` and `thin_walls.py` choose: `dual_cells.py` has the
topology, `dual_vertices.py` the positions, `dual_triangles.py` the triangles, `dual_clusters.py` merges flat cells.
`edge_changes.py` repairs a mesh, and `embedded_mesh.py` checks that it bounds a body.
"""
