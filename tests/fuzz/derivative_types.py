"""Random types of the derivative fuzzer: their text, values of them, and the coordinates that derivatives go by.

Nothing is imported from livegrad. A value is plain data (floats, lists, dicts); `build` makes an object of it in the
names of a program, `move` moves it along coordinates, and `coordinates` reads those of a differential.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

Names = dict[str, Any]


def number(random: Random) -> float:
    return round(random.uniform(0.2, 1.8) * random.choice((1, 1, -1)), 3)


class Type:
    text = ""

    def value(self, random: Random) -> Any:
        raise NotImplementedError

    def build(self, names: Names, value: Any) -> Any:
        return value

    def size(self, value: Any) -> int:
        """How many coordinates a differential of this value has."""
        raise NotImplementedError

    def move(self, value: Any, along: Iterator[float]) -> Any:
        raise NotImplementedError

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        raise NotImplementedError

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        raise NotImplementedError

    def read(self, result: Any) -> Any:
        """An object that a program gave, as plain data."""
        return result


class Float(Type):
    text = "float"

    def value(self, random: Random) -> Any:
        return number(random)

    def size(self, value: Any) -> int:
        return 1

    def move(self, value: Any, along: Iterator[float]) -> Any:
        return value + next(along)

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        return next(along)

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        return [float(differential)]

    def read(self, result: Any) -> Any:
        return float(result)


class Int(Type):
    text = "int"

    def value(self, random: Random) -> Any:
        return random.randint(1, 3)

    def size(self, value: Any) -> int:
        return 0

    def move(self, value: Any, along: Iterator[float]) -> Any:
        return value

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        return None

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        return []

    def read(self, result: Any) -> Any:
        return int(result)


class Vector(Type):
    text = "lg.dvec2"

    def value(self, random: Random) -> Any:
        return [number(random), number(random)]

    def build(self, names: Names, value: Any) -> Any:
        return names["lg"].dvec2(*value)

    def size(self, value: Any) -> int:
        return 2

    def move(self, value: Any, along: Iterator[float]) -> Any:
        return [part + next(along) for part in value]

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        return names["lg"].dvec2(next(along), next(along))

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        return [float(differential[0]), float(differential[1])]

    def read(self, result: Any) -> Any:
        return [float(result[0]), float(result[1])]


FLOAT, INT, VECTOR = Float(), Int(), Vector()


@dataclass
class List(Type):
    element: Type
    length: int
    sized: bool  # lg.array[T, n], which may stand in a struct, or list[T]

    @property
    def text(self) -> str:  # type: ignore[override]
        return f"lg.array[{self.element.text}, {self.length}]" if self.sized else f"list[{self.element.text}]"

    def value(self, random: Random) -> Any:
        return [self.element.value(random) for _ in range(self.length)]

    def build(self, names: Names, value: Any) -> Any:
        return [self.element.build(names, item) for item in value]

    def size(self, value: Any) -> int:
        return sum(map(self.element.size, value))

    def move(self, value: Any, along: Iterator[float]) -> Any:
        return [self.element.move(item, along) for item in value]

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        return [self.element.differential(names, item, along) for item in value]

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        pairs = zip(value, differential, strict=True)
        return [part for item, own in pairs for part in self.element.coordinates(item, own)]

    def read(self, result: Any) -> Any:
        return [self.element.read(item) for item in result]


@dataclass
class Optional(Type):
    element: Type

    @property
    def text(self) -> str:  # type: ignore[override]
        return f"{self.element.text} | None"

    def value(self, random: Random) -> Any:
        return None if random.random() < 0.4 else self.element.value(random)

    def build(self, names: Names, value: Any) -> Any:
        return None if value is None else self.element.build(names, value)

    def size(self, value: Any) -> int:
        return 0 if value is None else self.element.size(value)

    def move(self, value: Any, along: Iterator[float]) -> Any:
        return None if value is None else self.element.move(value, along)

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        return None if value is None else self.element.differential(names, value, along)

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        if value is None:
            assert differential is None
            return []
        return self.element.coordinates(value, differential)

    def read(self, result: Any) -> Any:
        return None if result is None else self.element.read(result)


@dataclass
class Field:
    name: str
    type: Type
    no_diff: bool = False
    member: str | None = None  # in a Differential of the struct's own; the same for fields that move together


@dataclass
class Struct(Type):
    name: str
    fields: list[Field]
    own: list[str] = field(default_factory=list)  # members of a Differential of its own, in their order
    later: bool = False  # it is defined after the struct
    interface: str | None = None
    generic: bool = False

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.name

    def moving(self) -> list[list[Field]]:
        """The fields behind each coordinate of the Differential, in the order of its members."""
        active = [f for f in self.fields if not f.no_diff and not isinstance(f.type, Int)]
        if not self.own:
            return [[f] for f in active]
        return [[f for f in active if f.member == member] for member in self.own]

    def members(self) -> list[str]:
        return self.own or [group[0].name for group in self.moving()]

    def value(self, random: Random) -> Any:
        return {f.name: f.type.value(random) for f in self.fields}

    def build(self, names: Names, value: Any) -> Any:
        return names[self.name](*[f.type.build(names, value[f.name]) for f in self.fields])

    def size(self, value: Any) -> int:
        return sum(group[0].type.size(value[group[0].name]) for group in self.moving())

    def move(self, value: Any, along: Iterator[float]) -> Any:
        moved = dict(value)
        for group in self.moving():
            shared = [next(along) for _ in range(group[0].type.size(value[group[0].name]))]
            for f in group:
                moved[f.name] = f.type.move(value[f.name], iter(shared))
        return moved

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        made = names[f"{self.name}D"] if self.own else names[self.name].Differential
        return made(*[g[0].type.differential(names, value[g[0].name], along) for g in self.moving()])

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        pairs = zip(self.members(), self.moving(), strict=True)
        return [c for m, g in pairs for c in g[0].type.coordinates(value[g[0].name], getattr(differential, m))]

    def read(self, result: Any) -> Any:
        return {f.name: f.type.read(getattr(result, f.name)) for f in self.fields}


@dataclass
class Interface(Type):
    name: str
    structs: list[Struct]

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.name

    def value(self, random: Random) -> Any:
        place = random.randrange(len(self.structs))
        return (place, self.structs[place].value(random))

    def build(self, names: Names, value: Any) -> Any:
        return self.structs[value[0]].build(names, value[1])

    def size(self, value: Any) -> int:
        return self.structs[value[0]].size(value[1])

    def move(self, value: Any, along: Iterator[float]) -> Any:
        return (value[0], self.structs[value[0]].move(value[1], along))

    def differential(self, names: Names, value: Any, along: Iterator[float]) -> Any:
        return self.structs[value[0]].differential(names, value[1], along)

    def coordinates(self, value: Any, differential: Any) -> list[float]:
        return self.structs[value[0]].coordinates(value[1], differential)

    def read(self, result: Any) -> Any:
        place = [struct.name for struct in self.structs].index(type(result).__name__)
        return (place, self.structs[place].read(result))


def displacement(type: Type, before: Any, after: Any) -> list[float]:
    """How far a value has moved, by coordinates: fields that share a member by the mean of their ways."""
    match type:
        case Float():
            return [after - before]
        case Vector():
            return [b - a for a, b in zip(before, after, strict=True)]
        case List(element=element):
            return [c for a, b in zip(before, after, strict=True) for c in displacement(element, a, b)]
        case Optional(element=element):
            return [] if before is None else displacement(element, before, after)
        case Interface(structs=structs):
            assert before[0] == after[0]
            return displacement(structs[before[0]], before[1], after[1])
        case Struct():
            found = []
            for group in type.moving():
                ways = [displacement(f.type, before[f.name], after[f.name]) for f in group]
                found += [sum(parts) / len(parts) for parts in zip(*ways, strict=True)]
            return found
    return []
