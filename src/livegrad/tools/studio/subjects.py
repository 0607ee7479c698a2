"""What the Studio can show: engines, blocks, functions, parts, saved documents, programs, and the gallery.

In: an object or the name of a file. Out: a `Subject`, which builds a scene when the engine thread opens it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from livegrad.diagnostics import UsageError, caller_origin
from livegrad.frontend.function.captured import CapturedFunction
from livegrad.implicit.bodies.part import Part
from livegrad.implicit.nodes.assembly import Assembly
from livegrad.ir.node import Function
from livegrad.live.blocks.bodies import block
from livegrad.live.documents import Document, load_document
from livegrad.live.engine import Engine
from livegrad.live.graph.block import Block
from livegrad.tools.argument_values import is_object
from livegrad.tools.objects import open_object
from livegrad.tools.part_files import PartChoice, open_part, part_of_object
from livegrad.tools.studio.drafts import draft_of
from livegrad.tools.studio.edits import MessageError
from livegrad.tools.studio.gallery import EXAMPLES
from livegrad.tools.studio.positions import part_of_positions
from livegrad.tools.studio.scenes import Scene
from livegrad.tools.studio.sections import part_scene
from livegrad.tools.studio.values import Json

_PART_FILES = (".3mf", ".vm")
_SHOWN = "an engine, a block, a function, a part, or the name of a file"


@dataclass(frozen=True)
class Subject:
    """Something to show. `is_owned` says whether the Studio closes the engine when another one is opened."""

    title: str
    open: Callable[[], Scene]
    is_owned: bool = True
    drives: bool = True  # whether the Studio runs the frames


@dataclass
class Shelf:
    """What pages can open: one subject, a document that waits for trust, or the gallery."""

    subject: Subject | None = None
    document: Document | None = None
    texts: dict[str, str] = field(default_factory=dict)  # the functions of the document whose code is trusted

    @property
    def has_gallery(self) -> bool:
        """Whether pages may open examples."""
        return self.subject is None and self.document is None

    def gallery(self) -> list[Json]:
        """The examples, as JSON."""
        if not self.has_gallery:
            return []
        return [{"name": example.name, "title": example.title, "about": example.about} for example in EXAMPLES]

    def example(self, name: Any) -> Subject:
        """The example with a name. A page can open nothing else."""
        example = next((example for example in EXAMPLES if example.name == name), None)
        if example is None or not self.has_gallery:
            raise MessageError("there is no such example", found=repr(name)[:60])
        return Subject(example.title, example.build)

    def untrusted(self) -> Json | None:
        """The document that waits for trust: its name, and the code that it would run."""
        document = self.document
        return None if document is None else {"name": document.path.name, "functions": document.functions}

    def trusted(self) -> Subject:
        """The document, whose code may run from now on."""
        document = self.document
        if document is None:
            raise MessageError("no document waits for trust")
        self.texts = document.functions
        self.document, self.subject = None, _document_subject(document, document.path, trust=True)
        return self.subject

    def draft(self, path: Path) -> Subject | None:
        """The draft of a document that is open. None if its code must be trusted first: then it waits for that."""
        document = load_document(draft_of(path))
        if document.functions and self.texts != document.functions:
            self.document, self.subject = replace(document, path=path), None
            return None
        return _document_subject(document, path, trust=True)


def shelf_of(what: Any, *, drives: bool = True, trust: bool = False) -> Shelf:
    """What to show for an object, a file name, or None (the gallery).

    >>> shelf_of(None).has_gallery, shelf_of(Engine()).subject.title
    (True, 'engine')
    """
    if what is None:
        return Shelf()
    if isinstance(what, str | Path) and not is_object(str(what)):
        path = Path(what)
        if path.suffix.lower() in _PART_FILES:
            return Shelf(Subject(path.name, lambda: part_scene(open_part(path, PartChoice()))))
        what = load_document(path)
    if isinstance(what, str | Path):
        name = str(what)
        return Shelf(subject_of(open_object(name), name.rpartition("/")[2], drives=drives))
    if isinstance(what, Document):
        document = what
        if trust or not document.functions:
            subject = _document_subject(document, document.path, trust=trust)
            return Shelf(subject, texts=document.functions)
        return Shelf(document=document)
    return Shelf(subject_of(what, "", drives=drives))


def _document_subject(document: Document, path: Path, *, trust: bool) -> Subject:
    return Subject(path.name, lambda: Scene(document.engine(trust=trust), path=path))


def subject_of(what: Any, title: str, *, drives: bool = True) -> Subject:
    """What to show for an object of a program."""
    if isinstance(what, Engine):
        return Subject(title or "engine", lambda: Scene(what), is_owned=False, drives=drives)
    if isinstance(what, Part | Assembly):
        part = part_of_object(title or "part", what)
        return Subject(title or part.name, lambda: part_scene(part))
    if isinstance(what, Block):
        return Subject(title or what.name, lambda: _engine_with(what))
    part = part_of_positions(what) if isinstance(what, CapturedFunction | FunctionType) else None
    if part is not None:
        return Subject(title or part.name, lambda: part_scene(part))
    if isinstance(what, Function | CapturedFunction) or (callable(what) and not isinstance(what, type)):
        shown = block(what)  # here, so that a wrong signature is an error of the caller
        return Subject(title or shown.name, lambda: _engine_with(shown))
    raise UsageError("the Studio cannot show this", where=caller_origin(), expected=_SHOWN, found=type(what).__name__)


def _engine_with(only: Block) -> Scene:
    engine = Engine(compile="background")
    engine.add(only)
    return Scene(engine)
