"""Parses untrusted XML to a tree with line numbers, without entities and with limits for depth and size.

The 3MF reader walks the tree. Vertices and triangles are stored as rows of text, because meshes have millions of them.
"""

from __future__ import annotations

import xml.parsers.expat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from livegrad.diagnostics import TextOrigin
from livegrad.implicit.formats.errors import FormatError
from livegrad.implicit.formats.package import Limits

_ROWS = {"vertex": ("x", "y", "z"), "triangle": ("v1", "v2", "v3")}


_NO_PREFIXES: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class NumberRows:
    """Vertices or triangles: the text of their numbers, and their other attributes."""

    numbers: list[tuple[str, ...]] = field(default_factory=list)
    properties: set[tuple[str | None, ...]] = field(default_factory=set)  # (pid, p1, p2, p3) of rows with any of these
    attributes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Element:
    """An XML element. Keys of attributes are `name`, or `namespace name` if they have a namespace."""

    namespace: str
    name: str
    attributes: dict[str, str]
    line: int
    file: str
    children: list[Element] = field(default_factory=list)
    text: str = ""
    table: NumberRows | None = None  # vertices or triangles
    prefixes: Mapping[str, str] = field(
        default_factory=lambda: _NO_PREFIXES
    )  # of the root element: namespaces by prefix

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The numbers of its vertices or triangles."""
        return [] if self.table is None else self.table.numbers

    @property
    def row_properties(self) -> set[tuple[str | None, ...]]:
        """The properties (pid, p1, p2, p3) of rows that have any."""
        return set() if self.table is None else self.table.properties

    @property
    def row_attributes(self) -> set[str]:
        """The names of the additional attributes of rows."""
        return set() if self.table is None else self.table.attributes

    @property
    def location(self) -> TextOrigin:
        return TextOrigin(self.file, self.line)

    def child(self, name: str) -> Element | None:
        """The first child with this name, or None."""
        return next((child for child in self.children if child.name == name), None)

    def children_named(self, name: str) -> Iterator[Element]:
        """The children with this name."""
        return (child for child in self.children if child.name == name)

    def attribute(self, vocabulary: str, name: str) -> str | None:
        """An attribute in the namespace of an extension, or None."""
        for key, value in self.attributes.items():
            namespace, _, local_name = key.rpartition(" ")
            if local_name == name and f"/{vocabulary}/" in namespace:
                return value
        return None

    def descendants(self, *names: str) -> Iterator[Element]:
        """The descendants with these names, in document order."""
        pending = list(reversed(self.children))
        while pending:
            element = pending.pop()
            if element.name in names:
                yield element
            pending.extend(reversed(element.children))

    def error(self, message: str, **details: str) -> FormatError:
        """Creates an error that points at this element."""
        return FormatError(f"<{self.name}>: {message}", where=self.location, **details)

    def require(self, attribute: str) -> str:
        """Returns an attribute; raises if it is missing."""
        value = self.attributes.get(attribute)
        if value is None:
            raise self.error(f"attribute `{attribute}` is missing")
        return value


def parse_xml(data: bytes, file: str, limits: Limits) -> Element:
    """Parses a document to its root element.

    >>> parse_xml(b"<a><b x='1'/></a>", "a.xml", Limits()).children[0].attributes
    {'x': '1'}
    """
    return _Parser(file, limits).parse(data)


class _Parser:
    """Handles events of the Expat parser and builds the tree."""

    def __init__(self, file: str, limits: Limits) -> None:
        self.file = file
        self.limits = limits
        self.count = self.rows = 0
        self.open_elements: list[Element] = []
        self.root: Element | None = None
        self.parser = xml.parsers.expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start_element
        self.parser.EndElementHandler = self.end_element
        self.parser.CharacterDataHandler = self.add_text
        self.parser.StartDoctypeDeclHandler = self.reject_doctype
        self.parser.XmlDeclHandler = self.check_encoding
        self.parser.StartNamespaceDeclHandler = self.add_prefix
        self.prefixes: dict[str, str] = {}

    def parse(self, data: bytes) -> Element:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise FormatError("not in UTF-8", where=TextOrigin(self.file, 1))
        try:
            self.parser.Parse(data, True)
        except xml.parsers.expat.ExpatError as error:
            raise FormatError(f"not well-formed: {error}", where=TextOrigin(self.file, error.lineno)) from None
        except (UnicodeError, ValueError, LookupError) as error:
            raise FormatError(f"not well-formed: {error}", where=TextOrigin(self.file, 1)) from None
        assert self.root is not None
        return self.root

    def reject_doctype(self, *_: object) -> None:
        # Document types can declare entities, which read local files or expand without limit.
        raise FormatError("document types are not allowed", where=self.location())

    def check_encoding(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8"):
            raise FormatError("not in UTF-8", where=self.location(), found=encoding[:40])

    def add_prefix(self, prefix: str | None, uri: str) -> None:
        if self.root is None:
            self.prefixes[prefix or ""] = uri

    def location(self) -> TextOrigin:
        return TextOrigin(self.file, self.parser.CurrentLineNumber)

    def start_element(self, qualified: str, attributes: dict[str, str]) -> None:
        if len(self.open_elements) >= self.limits.depth:
            raise FormatError(
                "elements are nested too deeply", where=self.location(), expected=f"at most {self.limits.depth} levels"
            )
        namespace, _, name = qualified.rpartition(" ")
        keys = _ROWS.get(name) if "/core/" in namespace else None
        if keys is not None and self.open_elements:
            self.add_row(self.open_elements[-1], name, keys, attributes)
            return
        self.count += 1
        if self.count > self.limits.elements:
            raise FormatError("too many elements", where=self.location(), expected=f"at most {self.limits.elements}")
        element = Element(namespace, name, attributes, self.parser.CurrentLineNumber, self.file)
        if self.open_elements:
            self.open_elements[-1].children.append(element)
        else:
            self.root = element
            element.prefixes = self.prefixes
        self.open_elements.append(element)

    def add_row(self, parent: Element, name: str, keys: tuple[str, ...], attributes: dict[str, str]) -> None:
        self.rows += 1
        if self.rows > self.limits.rows:
            raise FormatError(
                f"too many rows of <{name}>", where=self.location(), expected=f"at most {self.limits.rows}"
            )
        if parent.table is None:
            parent.table = NumberRows()
        table = parent.table
        try:
            table.numbers.append(tuple([attributes[key] for key in keys]))
        except KeyError as error:
            raise FormatError(f"<{name}>: attribute {error} is missing", where=self.location()) from None
        if len(attributes) > len(keys):
            table.properties.add(tuple([attributes.get(key) for key in ("pid", "p1", "p2", "p3")]))
            table.attributes.update(attributes)
        self.open_elements.append(parent)

    def end_element(self, qualified: str) -> None:
        self.open_elements.pop()

    def add_text(self, data: str) -> None:
        if self.open_elements and not data.isspace():
            self.open_elements[-1].text += data
