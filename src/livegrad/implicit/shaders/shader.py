"""`Shader`: the text of a shader with its uniforms and textures, and what a program needs to set them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.codegen.c.shader_dialects import TABLE_WIDTH


@dataclass(frozen=True, eq=False)
class Uniform:
    """A number, vector or list of numbers that a program sets before it draws.

    `name` is the name of the parameter, with a dot before a field of a struct; `identifier` is its name in the shader.
    In WGSL, all uniforms are words of one array, and this one starts at `offset`.

    >>> Uniform("light.color", "light_color", kind="float", size=3, offset=1, value=(1.0, 1.0, 1.0)).size
    3
    """

    name: str
    identifier: str
    kind: str  # float, int, uint or bool
    size: int
    offset: int
    value: tuple[float, ...] | None = None
    is_list: bool = False  # declared as an array, not as a number or vector


@dataclass(frozen=True, eq=False)
class Texture:
    """A table that a shader reads: a texture of one channel, with the elements in rows of 2048.

    >>> Texture("heights", "heights", "float", (100, 100)).size
    (2048, 5)
    """

    name: str
    identifier: str
    kind: str  # float, int or uint
    shape: tuple[int, ...]
    value: NDArray[Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """The width and the height of the texture."""
        return TABLE_WIDTH, max(1, -(-int(np.prod(self.shape)) // TABLE_WIDTH))

    def pixels(self) -> NDArray[Any]:
        """The elements as the rows of the texture, padded with zeros.

        >>> Texture("heights", "heights", "float", (3,), np.array([1.0, 2.0, 3.0])).pixels().shape
        (1, 2048)
        """
        dtype = {"float": np.float32, "int": np.int32, "uint": np.uint32}[self.kind]
        width, height = self.size
        flat = np.zeros(width * height, dtype)
        if self.value is not None:
            flat[: self.value.size] = self.value.reshape(-1)
        return flat.reshape(height, width)


@dataclass(frozen=True, eq=False)
class Shader:
    """The text of a shader, and what it reads.

    `functions` has the name of each function that a program may call, by what it computes: `value`, and
    `gradient of NAME` for each gradient that was asked for. `operations` counts what the functions have when all calls
    are inlined, as compilers of shaders do: it says how long they will take.

    >>> import livegrad as lg
    >>> ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
    >>> shader = lg.to_glsl(ball)
    >>> shader.functions, [(uniform.name, uniform.value) for uniform in shader.uniforms]
    ({'value': 'ball'}, [('radius', (1.0,))])
    """

    language: str
    text: str
    functions: dict[str, str]
    uniforms: tuple[Uniform, ...]
    textures: tuple[Texture, ...]
    operations: int

    def __str__(self) -> str:
        return self.text

    def uniform(self, name: str) -> Uniform:
        """The uniform of a parameter."""
        return next(uniform for uniform in self.uniforms if uniform.name == name)

    def to_json(self) -> dict[str, Any]:
        """The shader as data for another program, such as a web page. Pixels of textures are base64 text.

        >>> import livegrad as lg
        >>> ball = lg.shapes.sphere(lg.shapes.Parameter("radius", 1.0)).part(((-2, -2, -2), (2, 2, 2)), "ball")
        >>> lg.to_glsl(ball).to_json()["uniforms"]
        [{'name': 'radius', 'identifier': 'radius', 'kind': 'float', 'size': 1, 'offset': 0, 'value': [1.0]}]
        """
        return {
            "language": self.language,
            "text": self.text,
            "functions": dict(self.functions),
            "operations": self.operations,
            "uniforms": [
                {
                    "name": uniform.name,
                    "identifier": uniform.identifier,
                    "kind": uniform.kind,
                    "size": uniform.size,
                    "offset": uniform.offset,
                    "value": None if uniform.value is None else list(uniform.value),
                }
                for uniform in self.uniforms
            ],
            "textures": [
                {
                    "name": texture.name,
                    "identifier": texture.identifier,
                    "kind": texture.kind,
                    "width": texture.size[0],
                    "height": texture.size[1],
                    "pixels": base64.b64encode(texture.pixels().tobytes()).decode(),
                }
                for texture in self.textures
            ],
        }
