"""Alias analysis, so that the compiler can reject an in-place change that Python would show under another name.

Compiled values are copies. Each value records its aliases: the Python objects (lists, vectors, structs) that it is, is
contained in, or contains. Depths count index or field accesses: in `m[0][1]` the list `m` has depth 0 and `m[0]` has
depth 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

MAX_ALIAS_DEPTH = 8  # deeper components are treated as if they had this depth


@dataclass(frozen=True)
class Alias:
    """The component at depth `source` of an object is the component at depth `depth` of a value.

    An object is identified by its allocation site: the source location that first binds it to a name. A site in a loop
    allocates an object in each iteration; the newest one is distinguished from the earlier ones, which count as one.
    """

    object: Hashable
    source: int
    depth: int

    def depth_of(self, depth: int) -> int | None:
        """The depth in the object of the value's component at `depth`; None if that component is outside the object."""
        return None if depth < self.depth else self.source + depth - self.depth


Aliases = tuple[Alias, ...]


def outside_alias(name: str) -> Alias:
    """The object that a name outside the function refers to. Code outside the function may see its changes."""
    return Alias(("outside", name), 0, 0)


def is_outside(object: Hashable) -> bool:
    return isinstance(object, tuple) and object[0] == "outside"


def parameter_key(name: str) -> Hashable:
    """The key of the object that the caller passes for a parameter."""
    return "parameter", name


def aliases_of_element(aliases: Aliases) -> Aliases:
    """The aliases of an element or field of a value."""
    return tuple(
        Alias(alias.object, alias.source, alias.depth - 1)
        if alias.depth
        else Alias(alias.object, min(alias.source + 1, MAX_ALIAS_DEPTH), 0)
        for alias in aliases
    )


def aliases_of_container(members: Iterable[Aliases], depth: int = 1) -> Aliases:
    """The aliases of a list, tuple or struct of these members. An object that is in it twice occurs twice."""
    return tuple(
        Alias(alias.object, alias.source, min(alias.depth + depth, MAX_ALIAS_DEPTH))
        for aliases in members
        for alias in aliases
    )


def aliases_of_shallow_copy(aliases: Aliases) -> Aliases:
    """The aliases of a new list with the same elements."""
    return tuple(
        alias if alias.depth else Alias(alias.object, min(alias.source + 1, MAX_ALIAS_DEPTH), 1) for alias in aliases
    )


def merge_aliases(*alternatives: Aliases) -> Aliases:
    """The union: the aliases of a value that is one of several alternatives."""
    return tuple(dict.fromkeys(alias for aliases in alternatives for alias in aliases))


def aliases_of_result(result: Alias, argument: Aliases) -> Aliases:
    """The caller's aliases of a call's result that is, or contains, a component of an argument."""
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


def retire_allocation_site(aliases: Aliases, site: Hashable) -> Aliases:
    """The aliases after `site` has allocated another object: its previous objects become the earlier ones."""
    return tuple(
        replace(alias, object=("earlier", site)) if _allocation_site(alias.object) is site else alias
        for alias in aliases
    )


def _allocation_site(object: Hashable) -> Hashable:
    while isinstance(object, tuple):
        object = object[0]
    return object


def swapped_names(before: Mapping[str, Aliases], after: Mapping[str, Aliases]) -> set[str]:
    """The names whose objects an iteration of a loop permutes, as in `old, new = new, old`.

    Before and after the iteration, each name refers to exactly one object, which the function created and which shares
    no component with another name. The next iteration therefore starts from an equivalent state.

    >>> first, second = (Alias("first", 0, 0),), (Alias("second", 0, 0),)
    >>> sorted(swapped_names({"a": first, "b": second}, {"a": second, "b": first}))
    ['a', 'b']
    >>> swapped_names({"a": first, "b": second}, {"a": second, "b": second})
    set()
    """
    names = {name for name, aliases in before.items() if _is_local_object(aliases) and aliases != after.get(name)}
    objects = {before[name][0] for name in names}
    new_aliases = [after.get(name, ()) for name in names]
    if {alias for aliases in new_aliases for alias in aliases} != objects or any(
        len(aliases) != 1 for aliases in new_aliases
    ):
        return set()
    permuted = {alias.object for alias in objects}
    other_aliases = [aliases for state in (before, after) for name, aliases in state.items() if name not in names]
    has_other_name = any(alias.object in permuted for aliases in other_aliases for alias in aliases)
    return set() if has_other_name or len(objects) < len(names) else names


def _is_local_object(aliases: Aliases) -> bool:
    """Whether a value is exactly one object, and this function created it."""
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
    """The objects that the code compiled so far shares or changes."""

    shared: dict[Hashable, int] = field(default_factory=dict)  # object → depth from which a value contains it twice
    changed: set[Hashable] = field(default_factory=set)

    def record_shared(self, aliases: Aliases, siblings: Aliases = ()) -> None:
        """Records the objects that occur twice in a value with these aliases, or in it and in its siblings."""
        counts = Counter(alias.object for alias in (*aliases, *siblings))
        for alias in aliases:
            if counts[alias.object] > 1:
                self.shared[alias.object] = min(self.shared.get(alias.object, MAX_ALIAS_DEPTH), alias.source)

    def is_shared(self, object: Hashable, depth: int) -> bool:
        return is_outside(object) or (object in self.shared and min(depth, MAX_ALIAS_DEPTH) >= self.shared[object])
