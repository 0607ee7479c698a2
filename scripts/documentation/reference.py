"""The reference: every public name with its signature, docstring and examples, as pages of Markdown.

In: the package as it is imported, and `contents.PAGES`. Out: {file: text}, for the site's hook and for the tests.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from operator import attrgetter
from types import ModuleType
from typing import Any

import livegrad as lg
from livegrad.ir.op import Op
from livegrad.passes.differentiate.linearize import RULES
from livegrad.public_names import GROUPS
from livegrad.public_names import names_of as names_of_group
from scripts.documentation.contents import PAGES, Page, Section

WIDTH = 100
INHERITED = (object, Exception, BaseException, ValueError, TypeError, IndexError, OverflowError, tuple)


def public_names() -> list[str]:
    """The names of `livegrad` and of its groups, once each, in the order of the alphabet: `grad`, `live.watch`."""
    grouped = [f"{group}.{name}" for group in GROUPS for name in names_of_group(group) if name not in lg.__all__]
    return sorted({*lg.__all__, *grouped} - {*GROUPS}, key=lambda name: (name.rpartition(".")[2].lower(), name))


def value_of(name: str) -> Any:
    """What a public name stands for."""
    return attrgetter(name)(lg)


def namespaces() -> dict[str, ModuleType]:
    """The modules among the public names: `livegrad.linalg` and its like."""
    return {name: value for name in public_names() if inspect.ismodule(value := value_of(name))}


def names_of(namespace: ModuleType) -> list[str]:
    """A module's public names: those it lists, or else those it defines."""
    listed = getattr(namespace, "__all__", None)
    if listed is not None:
        return list(listed)
    own = namespace.__name__
    return [n for n, value in vars(namespace).items() if n[0] != "_" and getattr(value, "__module__", "") == own]


# --- which name goes where --------------------------------------------------------------------------------------------


def place_of(name: str) -> tuple[Page, Section | None]:
    """The page and section of one of livegrad's own names; a name that nobody takes is an error."""
    value = value_of(name)
    for page in PAGES:
        if name in page.namespaces:
            return page, None
        for section in page.sections:
            if name in section.names:
                return page, section
    module = value.__module__ if inspect.isclass(value) or inspect.isroutine(value) else ""
    every = [(page, section) for page in PAGES for section in page.sections]
    page, section = max(every, key=lambda place: place[1].closeness(module))
    if section.closeness(module):
        return page, section
    raise LookupError(f"no page of the reference takes livegrad.{name} ({module}): add it to contents.py")


def pages() -> dict[str, str]:
    """All pages of the reference, by file."""
    placed: dict[Section, list[str]] = {}
    for name in public_names():
        section = place_of(name)[1]
        if section is not None:
            placed.setdefault(section, []).append(name)
    written = {page.file: "\n".join(_page_lines(page, placed)) + "\n" for page in PAGES}
    return {"reference/index.md": _index()} | written


def _page_lines(page: Page, placed: dict[Section, list[str]]) -> Iterator[str]:
    yield f"# {page.title}\n\n{page.opening}\n"
    for section in page.sections:
        yield f"## {section.title}\n"
        for name in _in_order(section, placed.get(section, [])):
            yield from _entry(f"lg.{name}", value_of(name))
    for namespace in page.namespaces:
        module = value_of(namespace)
        yield from _op_table(module) if namespace == "ops" else _namespace(namespace, module)


def _in_order(section: Section, names: list[str]) -> list[str]:
    """As the section lists them; then classes, then the rest."""
    order = {name: index for index, name in enumerate(section.names)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), not inspect.isclass(value_of(name))))


def _namespace(name: str, module: ModuleType) -> Iterator[str]:
    yield f"({anchor_of(f'lg.{name}')})=\n\n## `lg.{name}`\n\n{_prose(inspect.getdoc(module) or '')}\n"
    for member in names_of(module):
        yield from _entry(f"lg.{name}.{member}", getattr(module, member))


def overview() -> str:
    """`docs/reference.md`: the names of each page, for readers of the repository, where the pages are not built."""
    lines = [
        "# Reference",
        "",
        "Every public name has a docstring with an example that the tests run: `help(lg.vmap)` prints it.",
        "`.venv/bin/python -m scripts.documentation` makes pages of them all, below `out/site/index.html`. These are",
        "the names.",
    ]
    for page in PAGES:
        names = ", ".join(f"`{name}`" for name in _names_on(page)) or page.opening
        heading = page.file.removeprefix("reference/").removesuffix(".md")
        lines += ["", f"## {heading}", "", f"{page.title}:", *textwrap.wrap(names, 120, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def _names_on(page: Page) -> list[str]:
    names = [name for name in public_names() if place_of(name)[0] is page and name != "ops"]
    return names + [f"{s}.{name}" for s in page.namespaces for name in names_of(value_of(s)) if s != "ops"]


def _index() -> str:
    lines = ["# Reference", "", "Every public name, made from its docstring. Each example is run by the tests.", ""]
    for page in PAGES:
        file = page.file.removeprefix("reference/")
        links = " · ".join(f"[`{name}`]({file}#{anchor_of('lg.' + name)})" for name in _names_on(page))
        lines += [f"## [{page.title}]({file})", "", links or page.opening, ""]
    return "\n".join(lines)


# --- one entry --------------------------------------------------------------------------------------------------------


def anchor_of(title: str) -> str:
    """The label of an entry. Sphinx takes no notice of case: `lg.Pair` and `lg.pair` need another difference."""
    return "".join("capital-" + letter if letter.isupper() else letter for letter in title).lower()


def _entry(title: str, value: Any) -> Iterator[str]:
    yield f"({anchor_of(title)})=\n\n### `{title}`\n"
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        yield from _value(value, title)
        return
    yield f"```python\n{signature_of(title.removeprefix('lg.'), value)}\n```\n"
    yield _prose(inspect.getdoc(value) or "") + "\n"
    if inspect.isclass(value):
        yield from _members(value)


def _value(value: Any, title: str) -> Iterator[str]:
    """Constants, types and the few objects that are called like functions."""
    documented = inspect.getdoc(value) or ""
    ours = type(value).__module__.startswith("livegrad") and not isinstance(value, lg.ir.types.Scalar)
    if ours and callable(value):
        yield f"```python\n{signature_of(title.removeprefix('lg.'), value)}\n```\n"
    if ours:
        yield _prose(documented) + "\n"
    elif isinstance(value, lg.ir.types.Scalar):
        same = [f"`lg.{name}`" for name in public_names() if value_of(name) is value]
        yield f"{same[0]}, a scalar type of {value.bits} bits. Names of one object: {', '.join(same)}.\n"
    else:
        yield f"`{value!r}`\n"


def _members(value: type) -> Iterator[str]:
    """Public methods and properties that a class defines or takes from classes of ours, where they are explained."""
    for name, member in _own_members(value).items():
        documented = inspect.getdoc(member)
        if not documented:
            continue
        if isinstance(member, property):
            head = name
        elif inspect.isroutine(inspect.unwrap(member)):
            head = re.sub(r"\((self|cls)(, )?", "(", signature_of(name, member, width=10_000), count=1)
        else:
            continue
        told = textwrap.indent(_prose(documented), "    ").strip()
        yield f"`{head}`\n:   {told}\n"


def _own_members(value: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in value.__mro__:
        if base in INHERITED or not base.__module__.startswith("livegrad"):
            continue
        for name, member in vars(base).items():
            if not name.startswith("_") and name not in found:
                found[name] = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    return found


class _Plain:
    """An annotation that prints without quotes."""

    def __init__(self, annotation: Any) -> None:
        self.text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self.text.replace("'", "").replace("typing.", "").replace("collections.abc.", "")


def signature_of(name: str, value: Any, width: int = WIDTH) -> str:
    """`name(parameters) -> result`, one parameter a line where it is long; a class as it is called."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"class {name}" if inspect.isclass(value) else name
    if inspect.isclass(value) and (issubclass(value, BaseException) or _takes_anything(signature)):
        return f"class {name}({', '.join(base.__name__ for base in value.__bases__ if base is not object)})"
    empty = inspect.Parameter.empty
    parameters = [
        parameter.replace(annotation=empty if parameter.annotation is empty else _Plain(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    result = signature.return_annotation
    shown = "" if result is inspect.Signature.empty or inspect.isclass(value) else f" -> {_Plain(result)!r}"
    one_line = f"{name}{inspect.Signature(parameters)}{shown}"
    if len(one_line) <= width:
        return one_line
    inside = str(inspect.Signature(parameters))[1:-1]
    return f"{name}(\n    " + ",\n    ".join(_split(inside)) + f",\n){shown}"


def _takes_anything(signature: inspect.Signature) -> bool:
    return {parameter.kind for parameter in signature.parameters.values()} == {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }


def _split(parameters: str) -> list[str]:
    """Splits at the commas that stand in no brackets."""
    depth, start, found = 0, 0, []
    for index, letter in enumerate(parameters):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append(parameters[start:index].strip())
            start = index + 1
    return [*found, parameters[start:].strip()]


# --- docstrings as Markdown -------------------------------------------------------------------------------------------

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\n)(?!>>> ).+\n?)*)+", re.MULTILINE)


def _prose(documented: str) -> str:
    """A docstring as Markdown: its examples fenced, lines of a record (`name: meaning`, one below the other) kept."""
    text = _EXAMPLE.sub(lambda match: f"\n```pycon\n{match.group().rstrip()}\n```\n", documented + "\n").strip()
    return re.sub(r"\n{3,}", "\n\n", text)


# --- the op table -----------------------------------------------------------------------------------------------------


def _op_table(module: ModuleType) -> Iterator[str]:
    ops = {name: value for name in names_of(module) if isinstance(value := getattr(module, name), Op)}
    yield (
        f"{_prose(inspect.getdoc(module) or '')}\n\n"
        "*expands*: the op is what its expansion into simpler ones is, everywhere. *In the pass*: calls and control "
        "flow have their rules in `passes/differentiate`. An op without a rule raises when a derivative comes to it; "
        "it never yields zero.\n"
    )
    yield "| op | elementwise | forward rule | linear in | transpose | checked |\n|---|---|---|---|---|---|"
    for name, op in ops.items():
        yield f"| `ops.{name}` | {' | '.join(_op_facts(op))} |"
    yield "\n## Functions that make nodes\n"
    for name in names_of(module):
        if name not in ops:
            yield from _entry(f"lg.ops.{name}", getattr(module, name))


def _op_facts(op: Op) -> list[str]:
    linear = "all" if isinstance(op.linear_in, range) else ", ".join(str(i) for i in range(8) if i in op.linear_in)
    forward = "zero" if not op.differentiable else "yes" if op.jvp else "expands" if op.expand else ""
    turned = "yes" if op.transpose else ""
    if op in RULES:
        forward, turned = "in the pass", "in the pass"
    return ["yes" if op.elementwise else "", forward, linear, turned, "yes" if op.checked else ""]


if __name__ == "__main__":
    print(overview(), end="")
