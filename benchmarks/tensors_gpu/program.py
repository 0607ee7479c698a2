"""A program of the suite: its sizes, its inputs and the function that livegrad and JAX share.

Ports for PyTorch are in the `*_torch` modules, because `torch.compile` traces only real modules. Trees are nested
dicts, lists and tuples of arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tree = Any
Run = Callable[[], Tree]  # starts the work and returns its results, on the device
Sizes = SimpleNamespace

PREFIX = "gpu_"  # begins the name of a row
FULL = "full"  # ends the name of a row whose program has one size
TEST = "test"  # ends the name of a row of the size that tests use
_UNIQUE = 1 << 20  # larger arrays repeat so many elements: drawing 100M numbers takes longer than most rows


def everything(result: Tree) -> Tree:
    return result


@dataclass(frozen=True)
class Program:
    """One computation at one or three sizes.

    `function(xp, sizes, *trees)` is the port of livegrad and of JAX. If `state_count` is given, the first so many
    arguments are states: the first results replace them in the next call."""

    name: str
    title: str  # with the sizes' names in braces
    sizes: Mapping[str, Sizes]  # by the end of a row's name
    small: Sizes  # for tests
    inputs: Callable[[Sizes], tuple[Tree, ...]]
    function: Callable[..., Tree]
    state_count: int = 0
    checked: Callable[[Tree], Tree] = everything  # what of the results is compared
    is_random: bool = False  # each library draws its own numbers: moments are compared
    tolerance: float = 1e-3  # relative to the root mean square of each result
    differing: float = 0.0  # the share of elements that rounding may change altogether
    one_library: bool = False  # the time is that of a library of NVIDIA's, which all contenders call

    def row_names(self) -> list[str]:
        return [f"{PREFIX}{self.name}_{size}" for size in self.sizes]

    def sizes_of(self, row: str) -> Sizes:
        size = row.removeprefix(f"{PREFIX}{self.name}_")
        return self.small if size == TEST else self.sizes[size]

    def title_of(self, row: str) -> str:
        return self.title.format(**{name: f"{size:,}" for name, size in vars(self.sizes_of(row)).items()})


def three_sizes(small: Sizes, medium: Sizes, large: Sizes) -> dict[str, Sizes]:
    return {"small": small, "medium": medium, "large": large}


def one_size(**sizes: int) -> dict[str, Sizes]:
    return {FULL: Sizes(**sizes)}


def _drawn(draw: Callable[[int], Array], shape: tuple[int, ...]) -> Array:
    count = prod(shape)
    return np.resize(draw(min(count, _UNIQUE)), shape)


def normal(shape: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> Array:
    """Normally distributed float32 numbers, the same in every process."""
    generator = np.random.default_rng(seed)
    return _drawn(lambda count: generator.standard_normal(count, np.float32) * np.float32(scale), shape)


def uniform(shape: tuple[int, ...], seed: int = 0, low: float = 0.0, high: float = 1.0) -> Array:
    generator = np.random.default_rng(seed)
    return _drawn(lambda count: generator.uniform(low, high, count).astype(np.float32), shape)


def integers(shape: tuple[int, ...], limit: int, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    return _drawn(lambda count: generator.integers(0, limit, count, dtype=np.int32), shape)


def dense(inputs: int, outputs: int, seed: int) -> Array:
    """Weights of a layer, scaled so that activations keep their size."""
    return normal((inputs, outputs), seed, inputs**-0.5)


def zeros_like(tree: Tree) -> Tree:
    return map_tree(np.zeros_like, tree)


def adam_state(parameters: Tree) -> Tree:
    """The state before the first step of Adam."""
    return {"step": np.zeros((), np.int32), "mean": zeros_like(parameters), "square": zeros_like(parameters)}


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: map_tree(function, part) for name, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map_tree(function, part) for part in tree)
    return function(tree)


def leaves(tree: Tree) -> list[Any]:
    """The arrays of a tree; those of a dict in the order of its keys, as JAX has them."""
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves(tree[name])]
    if isinstance(tree, list | tuple):
        return [leaf for part in tree for leaf in leaves(part)]
    return [tree]


def threaded(function: Callable[..., Tree], state_count: int, arguments: tuple[Tree, ...]) -> Run:
    """Calls a function with the states that its last call returned."""
    if not state_count:
        return lambda: function(*arguments)
    current = list(arguments)

    def run() -> Tree:
        result = function(*current)
        current[:state_count] = result[:state_count]
        return result

    return run
