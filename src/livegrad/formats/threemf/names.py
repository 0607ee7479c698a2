"""The namespaces and part names of 3MF, as the reader and the writer share them."""

from __future__ import annotations

CORE = "http://schemas.microsoft.com/3dmanufacturing/core/2015/02"
IMPLICIT = "http://schemas.3mf.io/3dmanufacturing/implicit/2023/12"
VOLUMETRIC = "http://schemas.3mf.io/3dmanufacturing/volumetric/2022/01"
BEAM_LATTICE = "http://schemas.microsoft.com/3dmanufacturing/beamlattice/2017/02"
LIVEGRAD = "urn:livegrad:assembly"  # of metadata that only we read
RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
CONTENT_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
MODEL_RELATIONSHIP = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"
TEXTURE_RELATIONSHIP = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dtexture"
MODEL_PART = "3D/3dmodel.model"
UNITS = ("micron", "millimeter", "centimeter", "inch", "foot", "meter")


def family(namespace: str) -> str:
    """Which vocabulary a namespace belongs to, of whatever year: core, implicit, volumetric, beamlattice, or other.

    >>> family(IMPLICIT), family("http://schemas.microsoft.com/3dmanufacturing/implicit/2023/02")
    ('implicit', 'implicit')
    """
    for name in ("implicit", "volumetric", "beamlattice", "core"):
        if f"/3dmanufacturing/{name}/" in namespace:
            return name
    return "other"
