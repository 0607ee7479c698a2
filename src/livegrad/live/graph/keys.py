"""Keys of nodes and buffers in a plan: paths that cannot collide, whatever names users choose.

The key of a node is the path of its block, `composite/block`. The key of a buffer is the key of a node followed by a
dot and a pin, `#` and a loop variable, or `!` and another item of the node. These characters are escaped inside names,
as in URLs.
"""

from __future__ import annotations

from functools import lru_cache

_PATH_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in "%/"})
_PIN_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in "%/.#!"})


@lru_cache(maxsize=1 << 16)
def path_part(name: str) -> str:
    """A block's name as a part of a path.

    >>> path_part("shade"), path_part("a/b")
    ('shade', 'a%2Fb')
    """
    return name.translate(_PATH_ESCAPES)


@lru_cache(maxsize=1 << 16)
def _pin_part(name: str) -> str:
    return name.translate(_PIN_ESCAPES)


def pin_key(node: str, pin: str) -> str:
    """The key of an input or result of a node.

    >>> pin_key("body/shade", "x"), pin_key("a", "b.c") == pin_key("a.b", "c")
    ('body/shade.x', False)
    """
    return f"{node}.{_pin_part(pin)}"


def carry_key(node: str, name: str) -> str:
    """The key of a loop variable."""
    return f"{node}#{_pin_part(name)}"


def item_key(node: str, what: object) -> str:
    """The key of an item of a node that is not a pin, such as a constant, by its index."""
    return f"{node}!{what}"
