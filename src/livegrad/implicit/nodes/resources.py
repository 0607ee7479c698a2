"""Resources of assemblies: meshes, beam lattices, image stacks, level sets, volume data and build items.

`implicit.formats.threemf` reads and writes them, `to_ir` evaluates them in node graphs, `level_sets` converts them to
parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from livegrad.diagnostics import caller_origin
from livegrad.implicit.nodes.errors import AssemblyError
from livegrad.ir.types import Scalar
from livegrad.live.graph.control import Control

_CHUNK = 1 << 16  # triangles; temporaries for all of them would take more memory than the mesh
IDENTITY: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


def _freeze(values: Any, dtype: Any) -> NDArray[Any]:
    try:
        array = np.array(values, dtype)
    except OverflowError:
        raise AssemblyError("not a valid index", where=caller_origin()) from None
    array.setflags(write=False)
    return array


def require_representable(coordinates: NDArray[Any], element: Scalar, what: str) -> None:
    """Raises for coordinates whose squares or areas would overflow in this precision."""
    limit = min(float(np.finfo(element.dtype).max) ** 0.4, 1e75)
    largest = float(np.abs(coordinates).max(initial=0.0))
    if not largest <= limit:
        raise AssemblyError(
            f"{what} is too large for the precision of {element}",
            where=caller_origin(),
            expected=f"coordinates up to {limit:.0e}",
            found=f"{largest:.3g}",
        )


OBJECT_TYPES = ("model", "solidsupport", "support", "surface", "other")
CAPS = ("sphere", "hemisphere", "butt")


def _require_one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise AssemblyError(
            f"invalid {what}", where=caller_origin(), expected=", ".join(allowed), found=repr(value)[:40]
        )


@dataclass(frozen=True)
class Thumbnail:
    """A small picture of a file or an object, as the bytes of a PNG or JPEG file.

    >>> Thumbnail(b"...", "image/jpeg").content_type
    'image/jpeg'
    """

    data: bytes
    content_type: str = "image/png"

    def __post_init__(self) -> None:
        _require_one_of("thumbnail content type", self.content_type, ("image/png", "image/jpeg"))


@dataclass(frozen=True, eq=False)
class TriangleMesh:
    """A triangle mesh: vertices of shape (n, 3), and triangles of shape (m, 3) as vertex indices.

    >>> TriangleMesh.box((0, 0, 0), (1, 2, 3)).bounds()[1]
    array([1., 2., 3.])
    """

    vertices: NDArray[np.float64]
    triangles: NDArray[np.int64]
    name: str = ""
    volume_data: int | None = None  # the resource id of the colours, materials and properties inside
    object_type: str = "model"
    thumbnail: Thumbnail | None = None

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"<mesh{name}: {len(self.vertices):,} vertices, {len(self.triangles):,} triangles>"

    def __post_init__(self) -> None:
        vertices, triangles = _freeze(self.vertices, np.float64), _freeze(self.triangles, np.int64)
        if vertices.ndim != 2 or vertices.shape[1] != 3 or triangles.ndim != 2 or triangles.shape[1] != 3:
            raise AssemblyError(
                "not a mesh",
                where=caller_origin(),
                expected="vertices and triangles of three numbers each",
                found=f"{vertices.shape} and {triangles.shape}",
            )
        if triangles.size and not (triangles.min() >= 0 and triangles.max() < len(vertices)):
            raise AssemblyError("a triangle refers to a vertex that does not exist", where=caller_origin())
        if not np.isfinite(vertices).all():
            raise AssemblyError("a vertex of the mesh is not a finite number", where=caller_origin())
        _require_one_of("object type", self.object_type, OBJECT_TYPES)
        object.__setattr__(self, "vertices", vertices)
        object.__setattr__(self, "triangles", triangles)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TriangleMesh)
            and (self.name, self.volume_data, self.object_type, self.thumbnail)
            == (other.name, other.volume_data, other.object_type, other.thumbnail)
            and np.array_equal(self.vertices, other.vertices)
            and np.array_equal(self.triangles, other.triangles)
        )

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The corners of the bounding box of the vertices."""
        if not len(self.vertices):
            raise AssemblyError("an empty mesh has no bounds", where=caller_origin())
        return self.vertices.min(0), self.vertices.max(0)

    def volume(self) -> float:
        """The volume of a closed mesh; negative if its triangles face inwards.

        >>> TriangleMesh.box((0, 0, 0), (1, 2, 3)).volume()
        6.0
        """
        if not len(self.triangles):
            return 0.0
        # Relative to a vertex of the mesh, because the sum loses digits far from the origin.
        origin, total = self.vertices[self.triangles[0, 0]], 0.0
        for start in range(0, len(self.triangles), _CHUNK):
            a, b, c = (self.vertices[self.triangles[start : start + _CHUNK]] - origin).transpose(1, 0, 2)
            total += float(np.einsum("ij,ij->", a, np.cross(b, c)))
        return total / 6

    def is_closed(self) -> bool:
        """Whether every edge joins exactly two triangles, in opposite directions."""
        starts, ends = self.triangles, np.roll(self.triangles, -1, axis=1)
        forward = (starts * len(self.vertices) + ends).ravel()
        backward = (ends * len(self.vertices) + starts).ravel()
        forward.sort()
        backward.sort()
        return bool((forward[1:] > forward[:-1]).all() and np.array_equal(forward, backward))

    def is_box(self) -> bool:
        """Whether the mesh is the surface of its bounding box, in any triangulation.

        >>> TriangleMesh.box((0, 0, 0), (1, 2, 3)).is_box()
        True
        """
        if not 12 <= len(self.triangles) <= 64 or not self.is_closed():
            return False
        low, high = self.bounds()
        corners = self.vertices[self.triangles].reshape(-1, 3)
        if not ((corners == low) | (corners == high)).all():
            return False
        return bool(np.isclose(self.volume(), np.prod(high - low), rtol=1e-9))

    @staticmethod
    def box(low: Any, high: Any, name: str = "") -> TriangleMesh:
        """Creates a closed box mesh, for example as the domain of a level set."""
        corners = np.array([[x, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], np.float64)
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        quads = ((0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5))
        triangles = [(a, b, c) for a, b, c, _ in quads] + [(a, c, d) for a, _, c, d in quads]
        return TriangleMesh(low + corners * (high - low), np.array(triangles), name)


@dataclass(frozen=True, eq=False)
class BeamLattice:
    """A beam lattice: vertices (n, 3), beams (m, 2) as vertex indices, and the radii (m, 2) at both ends of each beam.

    A beam is a frustum with a cap at each end: `sphere`, `hemisphere` or `butt`. Beams shorter than `min_length` are
    ignored. Vertices may have balls, and `triangles` may join vertices as in a mesh. `clipping` keeps the part of the
    lattice that is `inside` or `outside` the clipping mesh.

    >>> BeamLattice([[0, 0, 0], [0, 0, 9]], [[0, 1]], [[1.0, 0.5]], caps=[["butt", "sphere"]]).radii.tolist()
    [[1.0, 0.5]]
    """

    vertices: NDArray[np.float64]
    beams: NDArray[np.int64]
    radii: NDArray[np.float64]
    name: str = ""
    caps: Any = "sphere"  # one for all ends, or an array (m, 2)
    balls: Any = ()  # vertex indices
    ball_radii: Any = ()
    triangles: Any = ()
    min_length: float = 0.0001
    clipping: str = "none"
    clipping_mesh: int | None = None
    representation_mesh: int | None = None  # viewers may show it instead of the lattice
    object_type: str = "model"
    thumbnail: Thumbnail | None = None

    def __post_init__(self) -> None:
        vertices, beams = _freeze(self.vertices, np.float64), _freeze(self.beams, np.int64)
        radii = _freeze(self.radii, np.float64)
        if vertices.ndim != 2 or vertices.shape[1:] != (3,) or beams.shape[1:] != (2,) or radii.shape != beams.shape:
            raise AssemblyError("not a beam lattice", where=caller_origin(), found=f"{vertices.shape}, {beams.shape}")
        caps = np.array(np.broadcast_to(np.asarray(self.caps, np.str_), beams.shape))
        balls, ball_radii = _freeze(self.balls, np.int64).reshape(-1), _freeze(self.ball_radii, np.float64).reshape(-1)
        triangles = _freeze(self.triangles, np.int64).reshape(-1, 3)
        if balls.shape != ball_radii.shape:
            raise AssemblyError("each ball needs one radius", where=caller_origin())
        for what, indices in (("beam", beams), ("ball", balls), ("triangle", triangles)):
            if indices.size and not (indices.min() >= 0 and indices.max() < len(vertices)):
                raise AssemblyError(f"a {what} refers to a vertex that does not exist", where=caller_origin())
        all_radii = np.concatenate([radii.reshape(-1), ball_radii])
        if not (np.isfinite(vertices).all() and np.isfinite(all_radii).all() and (all_radii >= 0).all()):
            raise AssemblyError(
                "the vertices and radii of a beam lattice must be finite, and radii must not be negative",
                where=caller_origin(),
            )
        for cap in np.unique(caps):
            _require_one_of("beam cap", str(cap), CAPS)
        _require_one_of("clipping mode", self.clipping, ("none", "inside", "outside"))
        _require_one_of("object type", self.object_type, OBJECT_TYPES)
        arrays = {"vertices": vertices, "beams": beams, "radii": radii, "caps": caps}
        for name, value in {**arrays, "balls": balls, "ball_radii": ball_radii, "triangles": triangles}.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BeamLattice):
            return False
        arrays = ("vertices", "beams", "radii", "caps", "balls", "ball_radii", "triangles")
        scalars = [f.name for f in fields(self) if f.name not in arrays]
        return all(np.array_equal(getattr(self, n), getattr(other, n)) for n in arrays) and all(
            getattr(self, n) == getattr(other, n) for n in scalars
        )

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The corners of the bounding box of the beams, balls and triangles."""
        ends, radii = self.vertices[self.beams].reshape(-1, 3), self.radii.reshape(-1, 1)
        centres = np.concatenate([ends, self.vertices[self.balls], self.vertices[self.triangles.reshape(-1)]])
        extents = np.concatenate([radii, self.ball_radii[:, None], np.zeros((self.triangles.size, 1))])
        if not len(centres):
            raise AssemblyError("an empty lattice has no bounds", where=caller_origin())
        return (centres - extents).min(0), (centres + extents).max(0)


@dataclass(frozen=True, eq=False)
class ImageStack:
    """A stack of images: samples of shape (sheets, rows, columns, 4), with red, green, blue and alpha from 0 to 1.

    `depth` and `channels` describe the image files: 8 or 16 bits, and 1 (grey) to 4 (RGBA) channels.

    >>> ImageStack(np.ones((2, 8, 8, 4)), name="density").samples.shape
    (2, 8, 8, 4)
    """

    samples: NDArray[np.float32]
    depth: int = 8
    channels: int = 4
    name: str = ""

    def __post_init__(self) -> None:
        samples = _freeze(self.samples, np.float32)
        if samples.ndim != 4 or samples.shape[3] != 4 or not samples.size:
            raise AssemblyError(
                "not an image stack",
                where=caller_origin(),
                expected="(sheets, rows, columns, 4)",
                found=str(samples.shape),
            )
        object.__setattr__(self, "samples", samples)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ImageStack)
            and (self.depth, self.channels, self.name) == (other.depth, other.channels, other.name)
            and np.array_equal(self.samples, other.samples)
        )


@dataclass(frozen=True)
class LevelSet:
    """A body: the points inside a mesh, or inside its bounding box, where a scalar output of a function is negative.

    `transform` maps object coordinates to the coordinates of the function: twelve numbers, as in 3MF.

    >>> LevelSet(function=1, channel="shape", mesh=2)  # doctest: +ELLIPSIS
    LevelSet(...)
    """

    function: int
    channel: str
    mesh: int
    box_only: bool = False
    transform: tuple[float, ...] = IDENTITY
    min_feature_size: float = 0.0
    fallback: float = 0.0
    volume_data: int | None = None
    name: str = ""
    object_type: str = "model"
    thumbnail: Thumbnail | None = None


@dataclass(frozen=True)
class VolumeChannel:
    """An output of a function that gives the colour, the share of a material, or a named property inside a body.

    >>> VolumeChannel("property", function=3, channel="density", name="infill").kind
    'property'
    """

    kind: str  # color, property, or material
    function: int
    channel: str
    name: str = ""
    transform: tuple[float, ...] = IDENTITY
    min_feature_size: float = 0.0
    fallback: float = 0.0
    required: bool = False


@dataclass(frozen=True)
class VolumeData:
    """The colour, materials and properties inside a body, as functions of position.

    >>> [channel.name for channel in VolumeData((VolumeChannel("property", 3, "density", "infill"),)).channels]
    ['infill']
    """

    channels: tuple[VolumeChannel, ...] = ()
    material_group: int | None = None  # the resource id of the base materials that `material` channels mix


@dataclass(frozen=True)
class Components:
    """An object composed of other objects: pairs of a resource id and a transform."""

    members: tuple[tuple[int, tuple[float, ...]], ...]
    name: str = ""
    object_type: str = "model"
    thumbnail: Thumbnail | None = None


@dataclass(frozen=True)
class BuildItem:
    """An object of the assembly, placed on the build plate.

    >>> BuildItem(object=4, part_number="bracket-2").part_number
    'bracket-2'
    """

    object: int
    transform: tuple[float, ...] = IDENTITY
    part_number: str = ""


Resource = TriangleMesh | BeamLattice | ImageStack | LevelSet | VolumeData | Components


NamedConstant = tuple[str, int, str]  # parameter name, function id, node identifier


@dataclass(frozen=True)
class Document:
    """The contents of a file besides functions, resources and build items."""

    unit: str = "millimeter"
    metadata: tuple[tuple[str, str], ...] = field(default=())
    thumbnail: Thumbnail | None = None
    prefixes: tuple[tuple[str, str], ...] = ()  # XML namespaces of metadata names: (prefix, namespace)
    parameters: tuple[NamedConstant, ...] = ()  # constants that become parameters in `parts`
    controls: tuple[tuple[str, Control], ...] = ()  # how a panel shows parameters, by name
