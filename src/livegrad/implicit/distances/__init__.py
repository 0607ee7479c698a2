"""Distances to meshes, beam lattices and images as functions of the value IR."""
