"""Texts of random calls for `repeated_calls`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import livegrad as lg

TENSORS = [f"t{number}" for number in range(6)]
# Equal as numbers, but not as arguments; a key might also take them for positions of arguments.
NUMBERS = ["-1", "-1.0", "-1.0", "0", "0.0", "-0.0", "1", "1.0", "True", "False", "2", "2.0", "-2.0", "0.3"]
DTYPES = ["float32", "float64", "int32", "bool", "complex64", "float16", "bfloat16", "uint8"]
AXES = ["", "axis=0", "axis=1", "axis=-1", "axis=None"]

UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf
    isnan log log10 log1p log2 logical_not matrix_transpose negative real reciprocal relu round sigmoid sign signbit
    silu sin sinh sqrt square tan tanh transpose_matrix trunc""".split()  # noqa: SIM905
BINARY = """add atan2 bitwise_and bitwise_or bitwise_xor copysign divide equal floor_divide fmod greater greater_equal
    hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply not_equal pow remainder
    subtract""".split()  # noqa: SIM905
REDUCTIONS = "all amax amin any logsumexp max mean min prod std sum var".split()  # noqa: SIM905
ALONG_AXIS = "argmax argmin cumulative_prod cumulative_sum diff flip softmax".split()  # noqa: SIM905
PRODUCTS = "cross dot matmul outer tensordot vecdot".split()  # noqa: SIM905
LINALG = "cholesky det eigvalsh inv matrix_norm solve svdvals vector_norm".split()  # noqa: SIM905
CREATION = ["arange", "eye", "linspace"]
OPERATORS = ["+", "-", "*", "/", "%", "//", "**", "@", "<", "==", "|", "&", "<<"]
# Functions with arguments of their own; {0} to {2} are tensors, {3} and {4} tensors or numbers.
OTHERS: dict[str, list[str]] = {
    "astype": ["lg.astype({0}, lg.float32)", "{0}.astype(lg.int32)", "lg.astype({0}, lg.float64, copy=False)"],
    "broadcast_to": ["lg.broadcast_to({0}, (2, 3))", "lg.broadcast_to({0}, (3, 3))", "lg.broadcast_to({0}, (1, 3, 3))"],
    "clip": ["lg.clip({0}, {3}, {4})", "lg.clip({0}, min={3})", "lg.clip({0}, max={3})", "{0}.clip({3}, {4})"],
    "concat": ["lg.concat([{0}, {1}])", "lg.concat([{0}, {1}, {2}], axis=-1)", "lg.concat(({0}, {0}, {1}), axis=None)"],
    "diagonal": ["{0}.diagonal()", "{0}.diagonal(1)"],
    "expand_dims": ["lg.expand_dims({0}, axis=0)", "lg.expand_dims({0}, axis=-1)"],
    "permute_dims": ["lg.permute_dims({0}, (1, 0))", "lg.permute_dims({0}, (0,))"],
    "reshape": ["lg.reshape({0}, (-1,))", "{0}.reshape(3, -1)", "lg.reshape({0}, (1, -1))"],
    "roll": ["lg.roll({0}, 1)", "lg.roll({0}, -1, axis=0)", "lg.roll({0}, {3}, axis=0)"],
    "squeeze": ["lg.squeeze({0}, axis=0)", "lg.squeeze({0}[None], axis=0)"],
    "stack": ["lg.stack([{0}, {1}])", "lg.stack([{0}, {1}, {0}], axis=-1)", "lg.stack([{0}, {1}, {2}], axis=0)"],
    "tile": ["lg.tile({0}, (2,))", "lg.tile({0}, (2, 1))"],
    "trace": ["lg.linalg.trace({0})", "{0}.trace()"],
    "tril": ["lg.tril({0})", "lg.tril({0}, k=1)", "lg.tril({0}, k=-1)"],
    "triu": ["lg.triu({0})", "lg.triu({0}, k=1)", "lg.triu({0}, k=-1)"],
    "where": ["lg.where({0} != 0, {3}, {4})", "lg.where({0} > {3}, {1}, {2})", "lg.where({0} == {1}, {0}, {3})"],
}
INTEGER = "lg.astype(lg.abs(lg.sum({0})), lg.int32) % 2"
KEYS = [
    "{1}[0]", "{1}[-1]", "{1}[..., ::-1]", "{1}[None, 1:]", "{1}[[0, 1]]", f"{{1}}[{INTEGER}]", f"{{1}}[{INTEGER}, :]",
    f"{{1}}[({INTEGER}):({INTEGER}) + 1]", f"{{1}}[({INTEGER}):({INTEGER.replace('0', '2')}) + 1]",
    "{1}[{1} != 0]", "{1}[lg.asarray([1, 0])]", "{1}[True]",
]  # fmt: skip


def _tensor(choose: Random) -> str:
    """A tensor, or an expression that may equal, contain or convert another argument."""
    x, y = choose.choice(TENSORS), choose.choice(TENSORS)
    number, dtype = choose.choice(["2.0", "-1.0", "3", "1"]), choose.choice(DTYPES)
    return choose.choice(
        [
            *(
                x,
                x,
                x,
                f"({x} * {number})",
                f"({x} * {number})",
                f"({x} + {y})",
                f"(-{x})",
                f"lg.astype({x}, lg.{dtype})",
            ),
            *(f"{x}.mT", f"{x}[::-1]", f"lg.reshape({x}, (-1,))", f"{x}[0]", f"lg.sum({x})", f"lg.asarray({number})"),
            *(f"lg.zeros({x}.shape, dtype={x}.dtype)", f"lg.ones({x}.shape, dtype=lg.{dtype})", f"lg.copy({x})"),
        ]
    )


@dataclass(frozen=True)
class _Arguments:
    """The few arguments that the calls of a program share, so that many calls differ in little."""

    choose: Random
    tensors: list[str]
    operands: list[str]  # tensors and numbers

    def tensor(self) -> str:
        return self.choose.choice(self.tensors)

    def operand(self) -> str:
        return self.choose.choice(self.operands)

    def matrix(self) -> str:
        """A well-conditioned matrix made of a tensor."""
        shift = f"lg.tanh(lg.astype(lg.real(lg.sum({self.tensor()})), lg.float64))"
        return f"(lg.eye(3, dtype=lg.float64) * 4.0 + {shift})"


def random_calls(choose: Random, count: int) -> list[str]:
    """Calls of a few memoised functions, operators and indices, as expressions over `TENSORS`."""
    tensors = [_tensor(choose) for _ in range(3)]
    arguments = _Arguments(choose, tensors, tensors + [choose.choice(NUMBERS) for _ in range(2)])
    families = [choose.choices(range(9), [4, 6, 4, 2, 3, 7, 2, 1, 2])[0] for _ in range(3)]
    names = {kind: choose.choice(CHOICES[kind]) for kind in families}
    return [_call(kind := choose.choice(families), names[kind], arguments) for _ in range(count)]


CHOICES: list[Sequence[str]] = [
    *(UNARY, BINARY, REDUCTIONS, ALONG_AXIS, PRODUCTS, sorted(OTHERS), ["index"], LINALG + CREATION, OPERATORS),
]


def _call(kind: int, name: str, arguments: _Arguments) -> str:
    choose, x, y, z = arguments.choose, arguments.tensor(), arguments.tensor(), arguments.tensor()
    a, b = arguments.operand(), arguments.operand()
    if kind == 1:
        first, second = (x, a) if choose.random() < 0.6 else (a, x)
        return _method_or_function(name, first, second, choose=choose)
    if kind == 2:
        options = [choose.choice([*AXES, "axis=(0, 1)", "axis=(1, 0)"]), choose.choice(["", "keepdims=True"])]
        return _method_or_function(name, x, *[text for text in options if text], choose=choose)
    if kind == 3:
        return _method_or_function(name, x, choose.choice(["axis=0", "axis=-1"]), choose=choose)
    if kind == 4:
        return _method_or_function(name, x, y, choose=choose)
    if kind == 5:
        return choose.choice(OTHERS[name]).format(x, y, z, a, b)
    if kind == 6:
        return choose.choice(KEYS).format(x, y, z)
    if kind == 7:
        return _creation_call(name, arguments) if name in CREATION else _linalg_call(name, arguments)
    if kind == 8:
        return f"{x} {name} {a}" if choose.random() < 0.6 else f"{a} {name} {x}"
    return _method_or_function(name, x, choose=choose)


def _method_or_function(name: str, first: str, *others: str, choose: Random) -> str:
    if choose.random() < 0.2 and first not in NUMBERS and hasattr(lg.Tensor, name):
        return f"{first}.{name}({', '.join(others)})"
    owner = "lg.nn" if name in ("relu", "sigmoid", "silu", "softmax", "logsumexp") else "lg"
    return f"{owner}.{name}({', '.join((first, *others))})"


def _linalg_call(name: str, arguments: _Arguments) -> str:
    if name == "solve":
        right = arguments.choose.choice([arguments.tensor(), arguments.matrix()])
        return f"lg.linalg.solve({arguments.matrix()}, {right})"
    if name == "vector_norm":
        return (
            f"lg.linalg.vector_norm({arguments.tensor()}, ord={arguments.choose.choice(['1', '2', '2.0', 'lg.inf'])})"
        )
    return f"lg.linalg.{name}({arguments.matrix()})"


def _creation_call(name: str, arguments: _Arguments) -> str:
    size = arguments.choose.choice(["2", "3", "2.0", "True"])
    if name == "linspace":
        return f"lg.linspace({arguments.operand()}, {arguments.operand()}, 3)"
    return f"lg.arange({size})" if name == "arange" else f"lg.eye(3, k={arguments.choose.choice(NUMBERS)})"
