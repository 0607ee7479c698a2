"""Distances to meshes, beam lattices and images as functions of the value IR.

`mesh_distance.py` and `beam_distance.py` search a bounding volume hierarchy (`bvh.py`), `winding_number.py` decides
what is inside, and `image_sampling.py` reads stacks of images. `distance_call.py` registers the functions, so that
passes know their bounds.
"""
