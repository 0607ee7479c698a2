"""Shaders: functions and parts as GLSL and WGSL, with uniforms for their parameters, and viewports of parts."""
