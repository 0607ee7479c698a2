"""Alias analysis: compiled values are copies, so a Python object with two names must not be changed.

Each value knows the objects (lists, vectors, structs) that contain it and that it contains; two variables that share an
object are two names of it. Depths count steps: in `m[0][1]` the list `m` is at depth 0 and `m[0]` at depth 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

MAX_ALIAS_DEPTH = 8  # what lies deeper counts as if it lay there


@dataclass(frozen=True)
class Alias:
    """A component `source` steps deep in an object is `depth` steps deep in a value.

    An object is identified by the source location that gave it its first name. A loop does so in each iteration: the
    newest object is distinguished from the earlier ones, which count as one.
    """

    object: Hashable
    source: int
    depth: int

    def depth_of(self, depth: int) -> int | None:
        """The depth in the object of what lies `depth` steps deep in the value; None if it is outside of the object."""
        return None if depth < self.depth else self.source + depth - self.depth


Aliases = tuple[Alias, ...]


def outside_alias(name: str) -> Alias:
    """The object that a name outside the function stands for: others may see it."""
    return Alias(("outside", name), 0, 0)


def is_outside(object: Hashable) -> bool:
    return isinstance(object, tuple) and object[0] == "outside"


def parameter_key(name: str) -> Hashable:
    """What the object that a parameter is given is known by in the function."""
    return "parameter", name


def aliases_of_element(aliases: Aliases) -> Aliases:
    """The aliases of an element or field."""
    return tuple(
        Alias(alias.object, alias.source, alias.depth - 1)
        if alias.depth
        else Alias(alias.object, min(alias.source + 1, MAX_ALIAS_DEPTH), 0)
        for alias in aliases
    )


def aliases_of_container(members: Iterable[Aliases], depth: int = 1) -> Aliases:
    """The aliases of what holds others: an object that it holds twice occurs twice."""
    return tuple(
        Alias(alias.object, alias.source, min(alias.depth + depth, MAX_ALIAS_DEPTH))
        for aliases in members
        for alias in aliases
    )


def aliases_of_shallow_copy(aliases: Aliases) -> Aliases:
    """The aliases of a new list of the same elements."""
    return tuple(
        alias if alias.depth else Alias(alias.object, min(alias.source + 1, MAX_ALIAS_DEPTH), 1) for alias in aliases
    )


def merge_aliases(*ways: Aliases) -> Aliases:
    """The aliases of one of several values."""
    return tuple(dict.fromkeys(alias for aliases in ways for alias in aliases))


def aliases_of_result(result: Alias, argument: Aliases) -> Aliases:
    """The aliases of a result that is, or holds, a part of an argument."""
    aliases = []
    for alias in argument:
        depth = alias.depth_of(result.source)
        if depth is None:
            aliases.append(
                Alias(alias.object, alias.source, min(result.depth + alias.depth - result.source, MAX_ALIAS_DEPTH))
            )
        else:
            aliases.append(Alias(alias.object, min(depth, MAX_ALIAS_DEPTH), result.depth))
    return tuple(aliases)


def retire_allocation_site(aliases: Aliases, reason: Hashable) -> Aliases:
    """The aliases, where a place in the program has made another object: those that it made before are earlier ones."""
    return tuple(
        replace(alias, object=("earlier", reason)) if _allocation_site(alias.object) is reason else alias
        for alias in aliases
    )


def _allocation_site(object: Hashable) -> Hashable:
    while isinstance(object, tuple):
        object = object[0]
    return object


def swapped_names(before: Mapping[str, Aliases], after: Mapping[str, Aliases]) -> set[str]:
    """The names that an iteration of a loop gives each other's objects, as in `old, new = new, old`.

    Each of them holds one object, which no other name has a part of, before and after. The objects are the function's
    own, so that they can change their roles: the next iteration starts as this one did.

    >>> first, second = (Alias("first", 0, 0),), (Alias("second", 0, 0),)
    >>> sorted(exchanged_names({"a": first, "b": second}, {"a": second, "b": first}))
    ['a', 'b']
    >>> exchanged_names({"a": first, "b": second}, {"a": second, "b": second})
    set()
    """
    names = {name for name, aliases in before.items() if _is_local_object(aliases) and aliases != after.get(name)}
    objects = {before[name][0] for name in names}
    new_aliases = [after.get(name, ()) for name in names]
    if {alias for aliases in new_aliases for alias in aliases} != objects or any(
        len(aliases) != 1 for aliases in new_aliases
    ):
        return set()
    changed = {alias.object for alias in objects}
    others = [aliases for way in (before, after) for name, aliases in way.items() if name not in names]
    elsewhere = any(alias.object in changed for aliases in others for alias in aliases)
    return set() if elsewhere or len(objects) < len(names) else names


def _is_local_object(aliases: Aliases) -> bool:
    """Whether a value is one whole object created by this function, not by its caller."""
    if len(aliases) != 1 or aliases[0].source or aliases[0].depth:
        return False
    object = aliases[0].object
    while isinstance(object, tuple):
        if object[0] in ("parameter", "outside"):
            return False
        object = object[0]
    return True


@dataclass
class Sharing:
    """What a function does to objects, up to the point that has been compiled."""

    shared: dict[Hashable, int] = field(default_factory=dict)  # from which depth on one value has it in two places
    changed: set[Hashable] = field(default_factory=set)

    def record_shared(self, aliases: Aliases, beside: Aliases = ()) -> None:
        """A value has these objects, beside others: those that are there twice cannot be told apart any more."""
        times = Counter(alias.object for alias in (*aliases, *beside))
        for alias in aliases:
            if times[alias.object] > 1:
                self.shared[alias.object] = min(self.shared.get(alias.object, MAX_ALIAS_DEPTH), alias.source)

    def is_shared(self, object: Hashable, depth: int) -> bool:
        return is_outside(object) or (object in self.shared and min(depth, MAX_ALIAS_DEPTH) >= self.shared[object])
