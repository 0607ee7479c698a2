"""Random programs of the derivative fuzzer: structs, interfaces, overloads, custom derivatives, functions over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.fuzz.derivative_bodies import Body
from tests.fuzz.derivative_types import FLOAT, INT, VECTOR, Field, Int, Interface, List, Optional, Struct, Type


@dataclass
class Function:
    name: str
    parameters: list[tuple[str, Type, bool]]  # name, type, no_diff
    result: Type


@dataclass
class Program:
    """The text of a program, and what it defines."""

    text: str
    main: Function
    overloads: list[Function] = field(default_factory=list)  # of `over`, each under its own name too
    features: set[str] = field(default_factory=set)


class Writer:
    """Writes one program."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.structs: list[Struct] = []
        self.interfaces: list[Interface] = []
        self.callable: list[Function] = []  # helpers that give a float
        self.overloads: list[Function] = []
        self.is_overloaded = False  # `over` is defined
        self.generic = False  # so is `scaled`
        self.features: set[str] = set()
        self.temporary = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def note(self, feature: str) -> None:
        self.features.add(feature)

    # --- types ---

    def type(self, depth: int = 2, inside: bool = False) -> Type:
        """A random type; `inside` of a struct, where lists have a length."""
        kinds = ["float", "float", "vector", "int"]
        if depth:
            kinds += (
                ["list", "optional"]
                + (["struct"] * 3 if self.structs else [])
                + (["interface"] if self.interfaces else [])
            )
        match self.random.choice(kinds):
            case "float":
                return FLOAT
            case "vector":
                return VECTOR
            case "int":
                return INT
            case "struct":
                self.note("nested struct" if inside else "struct")
                return self.random.choice(self.structs)
            case "interface":
                self.note("interface in a struct" if inside else "interface")
                return self.random.choice(self.interfaces)
            case "optional":
                self.note("optional")
                return Optional(self.random.choice((FLOAT, VECTOR)))
        element: Type = self.random.choice([FLOAT, VECTOR, *self.structs[:2], *([] if inside else self.interfaces)])
        self.note(f"list of {type(element).__name__.lower()}s")
        return List(element, self.random.randint(1, 3), sized=inside)

    def fields(self) -> list[Field]:
        count = self.random.randint(1, 4)
        made = [Field(f"f{k}", self.type(1, inside=True)) for k in range(count)]
        made.append(Field(f"f{count}", FLOAT))
        self.random.shuffle(made)
        for f in made:
            # A float stays in each struct, so that it has a derivative.
            if f.name != f"f{count}" and not isinstance(f.type, Int) and self.chance(0.25):
                f.no_diff = True
                self.note("no_diff field")
        return made

    def struct(self, interface: str | None = None) -> Struct:
        name = f"S{len(self.structs)}{'I' if interface else ''}{len(self.lines)}"
        made = Struct(name, self.fields(), interface=interface)
        if self.chance(0.45):
            self.give_differential(made)
        self.define(made)
        return made

    def give_differential(self, struct: Struct) -> None:
        """A Differential of its own: members in any order, shared by some fields, missing for others."""
        active = [f for f in struct.fields if not f.no_diff and not isinstance(f.type, Int)]
        self.note("own Differential")
        members: list[str] = []
        for f in active:
            alike = [g for g in active if g.member and g.type is f.type and f.type in (FLOAT, VECTOR)]
            if alike and self.chance(0.5):
                f.member = alike[0].member
                self.note("shared member")
            elif isinstance(f.type, Interface) or (members and self.chance(0.2)):
                f.no_diff = True
                self.note("field without a member")
            else:
                f.member = f.name if self.chance(0.3) else f"d_{f.name}"
                members.append(f.member)
        self.random.shuffle(members)
        struct.own = members
        struct.later = self.chance(0.5)

    def define(self, struct: Struct) -> None:
        supplied = []
        if struct.own:
            groups = dict(zip(struct.own, struct.moving(), strict=True))
            supplied = ["@lg.differentiable", f"class {struct.name}D:"]
            supplied += [f"    {m}: {self.differential_text(g[0].type)}" for m, g in groups.items()]
        if supplied and not struct.later:
            self.lines += supplied
        base = f"({struct.interface})" if struct.interface else ""
        self.lines += ["@lg.differentiable", f"class {struct.name}{base}:"]
        if supplied:
            quote = '"' if struct.later else ""
            self.lines.append(f"    Differential = {quote}{struct.name}D{quote}")
        for f in struct.fields:
            self.lines.append(f"    {f.name}: {self.field_text(struct, f)}")
        if struct.interface:
            self.method(struct)
        if supplied and struct.later:
            self.lines += supplied

    def field_text(self, struct: Struct, f: Field) -> str:
        missing = bool(struct.own) and f.member is None  # it has no derivative because it has no member
        text = f"lg.no_diff[{f.type.text}]" if f.no_diff and not missing else f.type.text
        if struct.own and f.member is not None and f.member != f.name:
            return f"Annotated[{text}, lg.derivative_member({f.member!r})]"
        return text

    def differential_text(self, type: Type) -> str:
        match type:
            case Struct(name=name, own=own):
                return f"{name}D" if own else f"{name}.Differential"
            case List(element=element, length=length):
                return f"lg.array[{self.differential_text(element)}, {length}]"
            case Optional(element=element):
                return f"{self.differential_text(element)} | None"
        return type.text

    def method(self, struct: Struct) -> None:
        self.lines += ["    @lg.differentiable", "    def area(self, s: float) -> float:"]
        body = Body(self, [("self", struct, False), ("s", FLOAT, False)], "        ")
        self.lines += body.returning(FLOAT)

    def interface(self) -> None:
        name = f"I{len(self.interfaces)}"
        self.lines += ["@lg.interface", f"class {name}:", "    @lg.differentiable"]
        self.lines.append("    def area(self, s: float) -> float: ...")
        structs = [self.struct(name) for _ in range(self.random.randint(1, 3))]
        self.interfaces.append(Interface(name, structs))
        self.note("interface")

    # --- functions ---

    def parameters(self, count: int) -> list[tuple[str, Type, bool]]:
        made = [(f"p{k}", self.type(), self.chance(0.12)) for k in range(count)]
        return [*made, (f"p{count}", FLOAT, False)]

    def function(self, name: str, result: Type, parameters: list[tuple[str, Type, bool]]) -> Function:
        made = Function(name, parameters, result)
        shown = ", ".join(f"{n}: {f'lg.no_diff[{t.text}]' if quiet else t.text}" for n, t, quiet in parameters)
        self.lines += ["@lg.differentiable", f"def {name}({shown}) -> {result.text}:"]
        self.lines += Body(self, parameters, "    ").returning(result)
        return made

    def custom(self) -> None:
        """A function with a derivative of its own, which is right."""
        name = f"custom{len(self.callable)}"
        self.lines += [
            "@lg.differentiable",
            f"def {name}(x: float, y: float) -> float:",
            "    return x * y + math.sin(x)",
        ]
        match self.random.choice(("forward", "backward", "substitute")):
            case "forward":
                self.lines += [f"@{name}.forward_derivative", "def _(x: lg.Pair[float], y: lg.Pair[float]):",
                               "    d = (y.primal + math.cos(x.primal)) * x.differential + x.primal * y.differential",
                               "    return lg.pair(x.primal * y.primal + math.sin(x.primal), d)"]  # fmt: skip
            case "backward":
                self.lines += [f"@{name}.backward_derivative", "def _(x: float, y: float, d: float):",
                               "    return (y + math.cos(x)) * d, x * d"]  # fmt: skip
            case "substitute":
                self.lines += [f"@{name}.primal_substitute", "def _(x: float, y: float) -> float:",
                               "    return math.sin(x) + y * x"]  # fmt: skip
        self.note("custom derivative")
        self.callable.append(Function(name, [("x", FLOAT, False), ("y", FLOAT, False)], FLOAT))

    def overloaded(self) -> None:
        kinds: list[Type] = [FLOAT, VECTOR, *self.structs]
        chosen = self.random.sample(kinds, min(len(kinds), self.random.randint(2, 3)))
        for k, type in enumerate(chosen):
            self.overloads.append(self.function(f"over{k}", FLOAT, [("a", type, False), ("s", FLOAT, False)]))
        # `over` has overloads of its own text: that of the first one again, and the others themselves.
        self.overloads[0] = self.function("over", FLOAT, self.overloads[0].parameters)
        self.lines += [f"over.overload({made.name})" for made in self.overloads[1:]]
        self.is_overloaded = True
        self.note("overloads")

    def generic_function(self) -> None:
        self.lines += ['T = TypeVar("T", bound=lg.Differentiable)', "@lg.differentiable"]
        self.lines += ["def scaled(value: T, by: float) -> T:", "    return value * math.sin(by) + value * value"]
        self.generic = True
        self.note("generic function")

    def write(self) -> Program:
        for _ in range(self.random.randint(0, 2)):
            self.structs.append(self.struct())
        if self.chance(0.4):
            self.generic_function()
        if self.chance(0.5):
            self.interface()
        if self.chance(0.5):
            self.structs.append(self.struct())
        if self.chance(0.6):
            self.custom()
        if self.chance(0.5):
            self.overloaded()
        for k in range(self.random.randint(0, 2)):
            self.callable.append(self.function(f"helper{k}", FLOAT, self.parameters(self.random.randint(0, 2))))
        result = FLOAT if self.chance(0.55) else self.type(1)
        while result is INT or isinstance(result, List) or not _moves(result):
            result = self.type(1)
        main = self.function("main", result, self.parameters(self.random.randint(0, 3)))
        head = ["from __future__ import annotations"] if self.chance(0.5) else []
        head += ["import math", "from typing import Annotated, TypeVar", ""]
        return Program("\n".join([*head, *self.lines]) + "\n", main, self.overloads, self.features)


def _moves(type: Type) -> bool:
    return not isinstance(type, Optional)


def random_program(random: Random) -> Program:
    return Writer(random).write()
