"""The namespaces, relationship types, content types and part names of 3MF, shared by the reader and the writer."""

from __future__ import annotations

import re

CORE = "http://schemas.microsoft.com/3dmanufacturing/core/2015/02"
IMPLICIT = "http://schemas.3mf.io/3dmanufacturing/implicit/2023/12"
VOLUMETRIC = "http://schemas.3mf.io/3dmanufacturing/volumetric/2022/01"
BEAM_LATTICE = "http://schemas.microsoft.com/3dmanufacturing/beamlattice/2017/02"
BALLS = "http://schemas.microsoft.com/3dmanufacturing/beamlattice/balls/2020/07"
LIVEGRAD = "urn:livegrad:assembly"  # of metadata that only livegrad reads
RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
CONTENT_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
MODEL_RELATIONSHIP = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dmodel"
TEXTURE_RELATIONSHIP = "http://schemas.microsoft.com/3dmanufacturing/2013/01/3dtexture"
THUMBNAIL_RELATIONSHIP = f"{RELATIONSHIPS}/metadata/thumbnail"
MODEL_PART = "3D/3dmodel.model"
MODEL_TYPE = "application/vnd.ms-package.3dmanufacturing-3dmodel+xml"
RELATIONSHIPS_TYPE = "application/vnd.openxmlformats-package.relationships+xml"
IMAGE_TYPES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg"}  # of thumbnails, by extension
UNITS = ("micron", "millimeter", "centimeter", "inch", "foot", "meter")
OBJECT_TYPES = ("model", "solidsupport", "support", "surface", "other")
WELL_KNOWN_METADATA = (
    "Title", "Designer", "Description", "Copyright", "LicenseTerms", "Rating", "CreationDate", "ModificationDate",
    "Application",
)  # fmt: skip

# Vocabularies: names of the core and of extensions, as in their namespaces of any year, including those before 3mf.io.
SUPPORTED = ("core", "implicit", "volumetric", "beamlattice", "production", "trianglesets")
IGNORED = ("material", "slice", "toolpath", "displacement", "booleans", "securecontent")
_VOCABULARY = re.compile(r"/(?:3dmanufacturing/)?(" + "|".join((*SUPPORTED, *IGNORED)) + r")(?:/|$)")


def vocabulary_of(namespace: str) -> str:
    """Returns the vocabulary of a namespace of any year: core, implicit, beamlattice, …, or other.

    >>> vocabulary_of(IMPLICIT), vocabulary_of("urn:mine")
    ('implicit', 'other')
    >>> vocabulary_of("http://schemas.microsoft.com/3dmanufacturing/implicit/2023/02")
    'implicit'
    """
    match = _VOCABULARY.search(namespace)
    return match.group(1) if match and "3dmanufacturing" in namespace else "other"
