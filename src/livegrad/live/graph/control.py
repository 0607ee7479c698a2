"""Controls: how a panel shows an input, such as a slider with a range and a unit. Computation ignores them.

A control comes from an annotation of a function's parameter, from an assignment to a pin, or from a parameter of a
shape. Documents save it, and `Engine.parameters` returns it as plain data.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter, unwrap
from math import isfinite
from types import CellType
from typing import Annotated, Any, Literal, get_args, get_origin

from livegrad.diagnostics import TextOrigin, UsageError, caller_origin, shown

ControlKind = Literal["number", "slider", "choice", "colour", "vector", "angle", "file"]
_KINDS = get_args(ControlKind)
_TEXTS = ("unit", "label", "group")


@dataclass(frozen=True)
class Control:
    """How a panel shows an input: a range with a step, a unit, a label, the group that it belongs to, and the kind.

    The kind is a `slider` if there is a range, a `choice` if there are `choices`, and otherwise a `number`; `colour`,
    `vector`, `angle` (in radians) and `file` (with `suffixes`) are named. `choices` are labels for the values 0, 1, …,
    or a dictionary from labels to values. A control does not limit the values that a program sets.

    >>> from typing import Annotated
    >>> import livegrad as lg
    >>> def amplify(x, gain: Annotated[float, lg.Control(0, 10, step=0.5, unit="dB", group="Sound")] = 1.0):
    ...     return x * gain
    >>> louder = lg.block(amplify)
    >>> louder["gain"].control.high, louder["x"].control
    (10, None)
    >>> louder["x"].control = lg.Control(choices=["left", "right"])
    >>> louder["x"].control.choices
    (('left', 0), ('right', 1))
    """

    low: float | None = None
    high: float | None = None
    step: float | None = None  # None: continuous
    unit: str = ""
    label: str = ""  # "": the name of the pin
    group: str = ""
    choices: Any = ()
    kind: ControlKind = "number"
    suffixes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", _pairs_of(self.choices))
        self._require_texts()
        self._require_range()
        self._require_kind()

    def _require_texts(self) -> None:
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                what = f"the {name} of a control must be a string"
                raise UsageError(what, where=caller_origin(), found=shown(getattr(self, name)))
        suffixes = self.suffixes
        suffixes = (suffixes,) if isinstance(suffixes, str) else suffixes
        if not isinstance(suffixes, list | tuple) or not all(isinstance(suffix, str) for suffix in suffixes):
            help = 'write suffixes=(".png", ".jpg")'
            found = shown(suffixes)
            raise UsageError("suffixes of files must be strings", where=caller_origin(), found=found, help=help)
        object.__setattr__(self, "suffixes", tuple(suffixes))

    def _require_range(self) -> None:
        numbers = [number for number in (self.low, self.high, self.step) if number is not None]
        if not all(map(_is_finite, numbers)):
            raise UsageError("a control has finite numbers", where=caller_origin(), found=shown(numbers))
        low, high, step = self.low, self.high, self.step
        if (low is None) != (high is None):
            help = "write both: lg.Control(0.0, 10.0)"
            raise UsageError("a range has a smallest and a largest value", where=caller_origin(), help=help)
        if low is not None and high is not None and not low < high:
            found = f"{low!r} to {high!r}"
            raise UsageError("an empty range", where=caller_origin(), expected="low < high", found=found)
        if step is not None and step <= 0:
            raise UsageError("the step of a control must be positive", where=caller_origin(), found=shown(step))

    def _require_kind(self) -> None:
        kind: Any = self.kind
        if kind not in _KINDS:
            expected = "one of " + ", ".join(_KINDS)
            raise UsageError("unknown kind of control", where=caller_origin(), expected=expected, found=shown(kind))
        if kind == "number":
            kind = "choice" if self.choices else "slider" if self.low is not None else "number"
            object.__setattr__(self, "kind", kind)
        needs = {"slider": (self.low is not None, "a range"), "choice": (self.choices, "choices")}
        has, what = needs.get(kind, (True, ""))
        if not has:
            raise UsageError(f"a {kind} needs {what}", where=caller_origin())
        if (self.choices and kind != "choice") or (self.suffixes and kind != "file"):
            found = f"a {kind}"
            raise UsageError("only a choice has choices, and only a file suffixes", where=caller_origin(), found=found)

    def __repr__(self) -> str:
        return f"Control({', '.join(f'{name}={value!r}' for name, value in _set_fields(self))})"


def _is_finite(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and isfinite(number)


def _set_fields(control: Control) -> Iterator[tuple[str, Any]]:
    """The fields that differ from their defaults."""
    for field in fields(control):
        value = getattr(control, field.name)
        is_inferred = field.name == "kind" and value in ("slider", "choice")
        if value != field.default and not is_inferred:
            yield field.name, value


def control_table(control: Control) -> dict[str, Any]:
    """A control as plain data, without fields that have their defaults; `Control(**table)` is equal to it.

    >>> control_table(Control(choices={"soft": 0.5}, label="Edge"))
    {'label': 'Edge', 'choices': [['soft', 0.5]]}
    """
    return {
        name: [list(item) if isinstance(item, tuple) else item for item in value] if isinstance(value, tuple) else value
        for name, value in _set_fields(control)
    }


def _pairs_of(choices: Any) -> tuple[tuple[str, float], ...]:
    """The labels and values of choices."""
    if isinstance(choices, Mapping):
        choices = choices.items()
    items = list(choices) if isinstance(choices, Iterable) and not isinstance(choices, str) else None
    if items is None:
        raise _choices_error(choices)
    pairs = [tuple(item) if isinstance(item, tuple | list) else (item, index) for index, item in enumerate(items)]
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str) or not (_is_finite(pair[1]) or isinstance(pair[1], bool)):
            raise _choices_error(items)
    labels = [label for label, _ in pairs]
    if len(set(labels)) < len(labels):
        raise UsageError("two choices have the same label", where=caller_origin(), found=shown(labels))
    return tuple(pairs)  # type: ignore[arg-type]


def _choices_error(found: Any) -> UsageError:
    expected = "labels, or a dictionary from labels to numbers"
    help = 'write choices=["soft", "hard"] or choices={"soft": 0.5, "hard": 2.0}'
    return UsageError("invalid choices", where=caller_origin(), expected=expected, found=shown(found), help=help)


def require_control(control: Any) -> None:
    """Raises unless this is a control or None."""
    if control is not None and not isinstance(control, Control):
        help = "write lg.Control(0.0, 10.0), or None for no control"
        raise UsageError("not a control", where=caller_origin(), found=type(control).__name__, help=help)


# --- annotations ------------------------------------------------------------------------------------------------------


def annotated_control(function: Callable[..., Any], parameter: Parameter) -> Control | None:
    """The control in a parameter's annotation, `Annotated[float, Control(0, 10)]`, which may be a string."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        extras = _extras_of_text(function, parameter.name, annotation) if "Annotated" in annotation else []
    else:
        extras = list(get_args(annotation)[1:]) if get_origin(annotation) is Annotated else []
    for extra in extras:
        if extra is Control:
            what = f"the control of `{parameter.name}` has no arguments"
            raise UsageError(what, where=_definition_line(function), help="write lg.Control(0.0, 10.0)")
    controls = [extra for extra in extras if isinstance(extra, Control)]
    if len(controls) > 1:
        raise UsageError(f"`{parameter.name}` has {len(controls)} controls", where=_definition_line(function))
    return controls[0] if controls else None


def _extras_of_text(function: Callable[..., Any], name: str, annotation: str) -> list[Any]:
    """The extras of `Annotated` in a string. Its type is not evaluated, because it may exist for type checkers only."""
    try:
        parsed = ast.parse(annotation, mode="eval").body
    except SyntaxError:  # a note for readers, not a type
        return []
    if not isinstance(parsed, ast.Subscript) or not ast.unparse(parsed.value).endswith("Annotated"):
        return []
    elements = parsed.slice.elts if isinstance(parsed.slice, ast.Tuple) else []
    extras: list[Any] = []
    for extra in elements[1:]:
        text = ast.unparse(extra)
        try:
            extras.append(eval(text, _names_of(function)))
        except UsageError as error:
            error.move_to(_definition_line(function))
            raise
        except Exception as error:
            raise UsageError(
                f"the annotation of `{name}` cannot be evaluated",
                where=_definition_line(function),
                found=f"{text}: {type(error).__name__}: {error}",
                help="define its names at the top of the module, or set the control of the pin",
            ) from error
    return extras


def _names_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that the annotations of a function may use: its globals, and what its body uses of outer functions."""
    plain = _plain(function)
    code = getattr(plain, "__code__", None)
    cells = zip(() if code is None else code.co_freevars, getattr(plain, "__closure__", None) or (), strict=False)
    filled = {name: cell.cell_contents for name, cell in cells if cell != CellType()}
    return {**getattr(plain, "__globals__", {}), **filled}


def _definition_line(function: Callable[..., Any]) -> TextOrigin | Any:
    code = getattr(_plain(function), "__code__", None)
    return caller_origin() if code is None else TextOrigin(code.co_filename, code.co_firstlineno)


def _plain(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return unwrap(function)
