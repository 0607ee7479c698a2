"""Shaders: functions and parts as GLSL and WGSL, with uniforms for their parameters, and viewports of parts.

`to_shader.py` has the public functions, `shader.py` the result and `shader_source.py` its text. `viewport_shader.py`
and `viewport_text.py` draw a part with sphere tracing; `steepness.py` bounds its gradient, and so the length of a
step.
"""
