"""Every public name has type hints, a docstring with an example, and an entry in the reference."""

from __future__ import annotations

import doctest
import inspect
import operator
import re
from pathlib import Path
from typing import Any

import pytest

import livegrad as lg
from livegrad.diagnostics import other_names
from livegrad.ir.op import Op
from livegrad.public_names import GROUPS
from scripts.documentation import reference
from scripts.documentation.contents import CHAPTERS, PAGES

ROOT = Path(__file__).resolve().parents[1]
MODULES = reference.namespaces()
# Where an example would say nothing: constants, and scalar types, whose own class has one.
PLAIN = (str, float, type(None), lg.ir.types.Scalar, Op)
NAMES = reference.public_names()
MEMBERS = [f"{space}.{name}" for space, module in MODULES.items() for name in reference.names_of(module)]


def value_of(name: str) -> Any:
    actual: Any = lg
    for part in name.split("."):
        actual = getattr(actual, part)
    return actual


def lacks_example(value: Any) -> bool:
    if isinstance(value, PLAIN):
        return False
    documented = inspect.getdoc(value) or ""
    return not (documented if inspect.ismodule(value) else doctest.DocTestParser().get_examples(documented))


def lacks_type_hints(value: Any) -> bool:
    own_init = inspect.isclass(value) and "__init__" in vars(value) and not getattr(value, "_is_protocol", False)
    if not inspect.isroutine(value) and not own_init:
        return False
    signature = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    bare = [p for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
    return bool(bare) or signature.return_annotation is inspect.Signature.empty


def test_every_name_has_a_docstring_with_an_example():
    assert [name for name in [*NAMES, *MEMBERS] if lacks_example(value_of(name))] == []


def test_every_name_has_type_hints():
    assert [name for name in [*NAMES, *MEMBERS] if lacks_type_hints(value_of(name))] == []


def test_the_checks_see_what_is_missing():
    def bare(x):
        return x

    assert lacks_example(bare)
    assert lacks_type_hints(bare)


def parameters_of(value: Any) -> set[str]:
    try:
        return set(inspect.signature(value).parameters)
    except (TypeError, ValueError):  # not callable, or written in C
        return set()


def test_parameters_are_words():
    """`axis` and `function`, not `dim` and `fn`: names of the Array API where it has some, whole words elsewhere."""
    shortened = {"arr", "ax", "cb", "cfg", "dim", "dims", "fn", "func", "idx", "lr", "msg", "opts", "params", "val"}
    actual = {name: parameters_of(value_of(name)) & shortened for name in [*NAMES, *MEMBERS]}
    assert {name: words for name, words in actual.items() if words} == {}


def test_every_name_has_one_place_in_the_reference():
    written = reference.pages()
    for name in NAMES:
        page, _ = reference.place_of(name)
        if name != "ops":
            assert f"({reference.anchor_of('lg.' + name)})=" in written[page.file], name
    for name in reference.names_of(lg.ops):
        assert f"ops.{name}`" in written["reference/ops.md"], name


def test_every_page_is_in_the_contents_once():
    listed = [file for chapter in CHAPTERS.values() for file in chapter.values()]
    made = {"contributing.md", "changelog.md", "from-scratch.md", "examples.md", "reference/index.md"}
    assert sorted(listed) == sorted({path.name for path in (ROOT / "docs").glob("*.md")} - {"reference.md"} | made)
    assert len({page.file for page in PAGES}) == len(PAGES)


def test_names_used_in_the_documentation_exist():
    """`lg.something` in any page, in code or in a sentence, is a public name."""
    for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"(?<![\w.])lg\.((?:[a-z]+\.)?[A-Za-z_]\w*)", path.read_text(encoding="utf-8")):
            first, _, rest = name.partition(".")
            if first in GROUPS:
                assert not rest or name in NAMES, f"{path.name}: lg.{name}"
                continue
            assert first in NAMES, f"{path.name}: lg.{name}"
            if rest and first in MODULES:
                assert rest in reference.names_of(MODULES[first]), f"{path.name}: lg.{name}"


def test_a_name_that_no_page_takes_is_an_error(monkeypatch):
    monkeypatch.setattr(lg, "stray", test_every_page_is_in_the_contents_once, raising=False)
    with pytest.raises(LookupError, match=r"no page of the reference takes livegrad\.stray"):
        reference.place_of("stray")


def test_names_of_other_libraries_lead_to_names_that_exist():
    for name, own in other_names.FUNCTIONS.items():
        assert not hasattr(lg, name)
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute '{name}'; write lg.{own}")):
            getattr(lg, name)
        actual = lg
        for step in own.partition("(")[0].split("."):
            actual = getattr(actual, step)
    x = lg.ones(3)
    for name, own in other_names.METHODS.items():
        assert not hasattr(x, name)
        for used in re.findall(r"\blg\.([\w.]+)", own):
            operator.attrgetter(used)(lg)
        for used in re.findall(r"\bx\.(\w+)", own):
            assert hasattr(x, used)
    with pytest.raises(AttributeError, match=r"has no attribute 'sqrt'; write lg\.sqrt\(x\)"):
        x.sqrt()  # type: ignore[attr-defined]
