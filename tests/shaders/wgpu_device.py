"""Runs WGSL through the package `wgpu`, on Mesa's software implementation of Vulkan where there is no GPU."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.shaders.browser import kind_of, texture_words

_FORMATS = {"f": ("r32float", "unfilterable-float"), "i": ("r32sint", "sint"), "u": ("r32uint", "uint")}


@cache
def reason_for_no_wgpu() -> str | None:
    """Why WGSL cannot run here, or None if it can."""
    if find_spec("wgpu") is None:
        return "wgpu is not installed"
    try:
        _device()
    except Exception as error:  # wgpu raises exceptions of several classes where there is no driver
        return f"wgpu finds no device: {error}"
    return None


@cache
def _device() -> Any:
    import wgpu  # pyright: ignore[reportMissingImports]

    return wgpu.gpu.request_adapter_sync(power_preference="low-power").request_device_sync()


def run_wgsl(
    text: str, outputs: int, inputs: NDArray[np.uint32], tables: dict[str, NDArray[Any]]
) -> NDArray[np.uint32]:
    """The bits that a compute shader writes, of shape (outputs, points), from inputs of shape (count, points).

    The shader has its inputs in binding 0 and its outputs in binding 1, as words, and its tables in the next ones.
    """
    import wgpu  # pyright: ignore[reportMissingImports]

    device = _device()
    points = inputs.shape[1]
    module = device.create_shader_module(code=text)
    storage = wgpu.BufferUsage.STORAGE
    data = device.create_buffer_with_data(data=np.ascontiguousarray(inputs), usage=storage)
    result = device.create_buffer(size=outputs * points * 4, usage=storage | wgpu.BufferUsage.COPY_SRC)
    layout: list[dict[str, Any]] = [
        {"binding": 0, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "read-only-storage"}},
        {"binding": 1, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}},
    ]
    entries: list[dict[str, Any]] = [
        {"binding": 0, "resource": {"buffer": data, "offset": 0, "size": data.size}},
        {"binding": 1, "resource": {"buffer": result, "offset": 0, "size": result.size}},
    ]
    for binding, table in enumerate(tables.values(), 2):
        layout.append(
            {
                "binding": binding,
                "visibility": wgpu.ShaderStage.COMPUTE,
                "texture": {"sample_type": _FORMATS[kind_of(table)][1]},
            }
        )
        entries.append({"binding": binding, "resource": _texture(device, table).create_view()})
    groups = device.create_bind_group_layout(entries=layout)
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[groups]),
        compute={"module": module, "entry_point": "main"},
    )
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, device.create_bind_group(layout=groups, entries=entries))
    compute.dispatch_workgroups(-(-points // 64))
    compute.end()
    device.queue.submit([encoder.finish()])
    return np.frombuffer(device.queue.read_buffer(result), np.uint32).reshape(outputs, points)


def _texture(device: Any, table: NDArray[Any]) -> Any:
    import wgpu  # pyright: ignore[reportMissingImports]

    words, width, height = texture_words(table)
    usage = wgpu.TextureUsage.TEXTURE_BINDING | wgpu.TextureUsage.COPY_DST
    format = _FORMATS[kind_of(table)][0]
    texture = device.create_texture(size=(width, height, 1), format=format, usage=usage)
    layout = {"offset": 0, "bytes_per_row": width * 4, "rows_per_image": height}
    device.queue.write_texture({"texture": texture}, words, layout, (width, height, 1))
    return texture
