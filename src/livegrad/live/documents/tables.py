"""Converts descriptions of blocks to the tables of a document, and back.

A description (`recording/describe.py`) has a list of blocks and a separate list of the sources of their inputs. A
document has a table for each block, which contains its inputs, and refers to a pin as `path/of/block.pin`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from livegrad.live.documents.readable_values import from_readable, to_readable
from livegrad.live.documents.toml_text import Inline
from livegrad.live.recording.exact_values import encode_value

Table = dict[str, Any]
_ESCAPES = (("~", "~0"), ("/", "~1"), (".", "~2"))  # in names, so that paths and pins are unambiguous
_SHARED_KEYS = ("capacity", "writers", "carried", "features", "shapes")  # the keys that descriptions and tables share
_DEFAULTS = ("defaults", "keyword_defaults")


def escape(name: str) -> str:
    """A name as part of a path.

    >>> escape("a/b.c")
    'a~1b~2c'
    """
    for character, escaped in _ESCAPES:
        name = name.replace(character, escaped)
    return name


def pin_text(pin: list[Any]) -> str:
    """A described pin as text: the path of its block, and its name."""
    return f"{pin[0]}.{escape(pin[1])}"


def parse_pin(text: str) -> list[str]:
    """The inverse of `pin_text`.

    >>> parse_pin(pin_text(["a~1b", "x.y"]))
    ['a~1b', 'x.y']
    """
    path, _, name = text.rpartition(".")
    for character, escaped in reversed(_ESCAPES):
        name = name.replace(escaped, character)
    return [path, name]


# --- to tables -------------------------------------------------------------------------------------------------------


def graph_tables(described: Table, path: str = "") -> Table:
    """The tables of the blocks of a graph, by name."""
    feeds: dict[str, Table] = {}
    for block_id, pin, source in described["sources"]:
        feeds.setdefault(block_id, {})[pin] = source
    return {line["name"]: _block_table(line, feeds.get(line["id"], {}), path) for line in described["blocks"]}


def _block_table(line: Table, feeds: Table, parent_path: str) -> Table:
    default_path = f"{parent_path}/{escape(line['name'])}".removeprefix("/")
    table: Table = {"at": line["at"]} if "at" in line else {}
    if "controls" in line:
        table["controls"] = Inline({pin: Inline(control) for pin, control in line["controls"].items()})
    inputs: Table = {name: _input_entry(None, source) for name, source in feeds.items()}
    if "kind" not in line:
        return {"same": line["id"], **table, **({"inputs": inputs} if inputs else {})}
    table |= {} if line["kind"] == "block" else {"kind": line["kind"]}
    table |= {} if line["id"] == default_path else {"path": line["id"]}
    table |= {
        key: Inline(line[key]) if isinstance(line[key], dict) else line[key] for key in _SHARED_KEYS if line.get(key)
    }
    match line["kind"]:
        case "block":
            body = line["body"]
            table |= _body_table(body, line["name"])
            inputs = {name: _input_entry(type, feeds.get(name)) for name, type in body["inputs"].items()}
        case "state":
            table["initial"] = to_readable(line["initial"])
        case "gradient":
            by = {name: pin_text(pin) for name, pin in line["by"].items()}
            table |= {"of": pin_text(line["of"]), "by": Inline(by)}
        case "append":
            table["function"] = line["function"]
        case "composite":
            return {**table, **_composite_tables(line), **({"inputs": inputs} if inputs else {})}
    if inputs:
        table["inputs"] = inputs
    if "bodies" in line:
        path = line["id"]
        table["bodies"] = {
            label: {"name": body["name"], **_block_table(body, {}, path)} for label, body in line["bodies"].items()
        }
    return table


def _composite_tables(line: Table) -> Table:
    exposed = {
        "exposed_inputs": Inline({name: list(map(pin_text, pins)) for name, pins in line["inputs"].items()}),
        "exposed_outputs": Inline({name: pin_text(pin) for name, pin in line["outputs"].items()}),
    }
    return {**{key: pins for key, pins in exposed.items() if pins}, "blocks": graph_tables(line, line["id"])}


def _body_table(body: Table, block_name: str) -> Table:
    table: Table = {} if body["name"] == block_name else {"body_name": body["name"]}
    table |= {"function": body["python"]} if "python" in body else {"ir": body["ir"]}
    if body.get("features"):
        table["features"] = body["features"]
    return {**table, "outputs": body["outputs"]}


def _input_entry(type: str | None, source: Table | None) -> Any:
    """An input: its type, if it is declared, and its source. A plain number needs no table."""
    typed = Inline() if type is None else Inline(type=type)
    if source is None:
        return typed
    if "connect" in source:
        return Inline(typed, **{"from": pin_text(source["connect"])})
    if "bound" in source:
        return Inline(typed, bound=Inline(source["bound"]))
    value = to_readable(source["set"])
    return value if type is None and isinstance(value, bool | int | float) else Inline(typed, value=value)


def function_table(line: Table) -> Table:
    """The table of a described function."""
    if "import" in line:
        return {"import": line["import"]}
    table: Table = {} if line["name"] == line["function"] else {"name": line["name"]}
    if "decorator" in line:
        table["decorator"] = line["decorator"]
    table |= {key: to_readable(line[key]) for key in _DEFAULTS if key in line}
    table["text"] = line["text"]
    names = {name: Inline(_name_entry(entry)) for name, entry in line["names"].items()}
    return {**table, "names": names} if names else table


def _name_entry(entry: Table) -> Table:
    return {"value": to_readable(entry["value"])} if "value" in entry else entry


# --- from tables -----------------------------------------------------------------------------------------------------


def graph_lines(tables: Table, path: str = "") -> Table:
    """The description of a graph, from the tables of its blocks."""
    blocks = [_block_line(name, table, path) for name, table in tables.items()]
    sources = [
        entry for line, table in zip(blocks, tables.values(), strict=True) for entry in _source_lines(line["id"], table)
    ]
    return {"blocks": blocks, "sources": sources}


def _source_lines(block_id: str, table: Table) -> Iterator[list[Any]]:
    for pin, entry in table.get("inputs", {}).items():
        if not isinstance(entry, dict):
            yield [block_id, pin, {"set": entry}]
        elif "from" in entry:
            yield [block_id, pin, {"connect": parse_pin(entry["from"])}]
        elif "value" in entry:
            yield [block_id, pin, {"set": encode_value(from_readable(entry["value"]))}]


def _block_line(name: str, table: Table, parent_path: str) -> Table:
    appearance = {key: table[key] for key in ("at", "controls") if key in table}
    if "same" in table:
        return {"id": table["same"], "name": name, **appearance}
    path = table.get("path", f"{parent_path}/{escape(name)}".removeprefix("/"))
    kind = table.get("kind", "block")
    line: Table = {"id": path, "name": name, "kind": kind, **appearance}
    line |= {key: table[key] for key in _SHARED_KEYS if key in table}
    match kind:
        case "block":
            line |= {"shapes": table.get("shapes", {}), "body": _body_line(name, table)}
        case "state":
            line["initial"] = encode_value(from_readable(table["initial"]))
        case "gradient":
            by = {pin: parse_pin(text) for pin, text in table["by"].items()}
            line |= {"of": parse_pin(table["of"]), "by": by}
        case "append":
            line["function"] = table["function"]
        case "composite":
            line |= {
                **graph_lines(table["blocks"], path),
                "inputs": {pin: list(map(parse_pin, texts)) for pin, texts in table.get("exposed_inputs", {}).items()},
                "outputs": {pin: parse_pin(text) for pin, text in table.get("exposed_outputs", {}).items()},
            }
    if "bodies" in table:
        line["bodies"] = {label: _block_line(body["name"], body, path) for label, body in table["bodies"].items()}
        line.setdefault("carried", {})
    return line


def _body_line(name: str, table: Table) -> Table:
    entries = table.get("inputs", {})
    inputs = {pin: entry.get("type") if isinstance(entry, dict) else None for pin, entry in entries.items()}
    common = {"name": table.get("body_name", name), "inputs": inputs, "outputs": table["outputs"]}
    if "ir" in table:
        return {"ir": table["ir"], "features": table.get("features", []), **common}
    return {"python": table["function"], **common}


def function_line(function_id: str, table: Table) -> Table:
    """The description of a function, from its table."""
    if "import" in table:
        return {"function": function_id, "import": table["import"]}
    line = {"function": function_id, "name": table.get("name", function_id), "text": table["text"]}
    line |= {"decorator": table["decorator"]} if "decorator" in table else {}
    line |= {key: encode_value(from_readable(table[key])) for key in _DEFAULTS if key in table}
    names: Iterable[tuple[str, Table]] = table.get("names", {}).items()
    line["names"] = {
        name: {"value": encode_value(from_readable(entry["value"]))} if "value" in entry else entry
        for name, entry in names
    }
    return line
