"""Digests of results, by which contenders are compared: some elements and the size of each array."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.tensors_gpu.program import Array, Program

Digest = list[dict[str, Any]]  # of each array: its shape, its root mean square and some elements
_PROBES = 97
_SUMMED = 1 << 20  # at most so many elements, evenly spread, enter the root mean square


def digest(arrays: Sequence[Array], is_random: bool) -> Digest:
    return [(_moments if is_random else _elements)(np.asarray(array)) for array in arrays]


def _flat(array: Array) -> Array:
    """All numbers of an array, complex ones as two, in float64; evenly spread ones if there are very many."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(flat):
        flat = flat.view(np.float64 if flat.dtype == np.complex128 else np.float32)
    return flat[:: max(1, flat.size // _SUMMED)].astype(np.float64)


def _elements(array: Array) -> dict[str, Any]:
    flat = _flat(array)
    picked = flat[np.linspace(0, flat.size - 1, min(_PROBES, flat.size)).astype(np.int64)]
    return {"shape": list(array.shape), "scale": float(np.sqrt(np.mean(flat**2))), "probe": picked.tolist()}


def _moments(array: Array) -> dict[str, Any]:
    flat = _flat(array)
    probe = [flat.mean(), (flat**2).mean(), np.abs(flat).mean(), (flat**4).mean() / 3.0]
    return {"shape": list(array.shape), "scale": 1.0, "probe": [float(value) for value in probe]}


def is_finite(result: Digest) -> bool:
    return all(np.isfinite([part["scale"], *part["probe"]]).all() for part in result)


def agree(program: Program, first: Digest, second: Digest) -> bool:
    return len(first) == len(second) and all(_parts_agree(program, *pair) for pair in zip(first, second, strict=True))


def _parts_agree(program: Program, first: dict[str, Any], second: dict[str, Any]) -> bool:
    if first["shape"] != second["shape"]:
        return False
    tolerance = 2e-2 if program.is_random else program.tolerance
    scale = max(first["scale"], second["scale"])
    if abs(first["scale"] - second["scale"]) > (tolerance + program.differing) * scale:
        return False
    one, other = (np.array(part["probe"]) for part in (first, second))
    return bool(np.mean(np.abs(one - other) > tolerance * (scale + np.abs(other))) <= program.differing)


def reasons_for_wrong(program: Program, results: Mapping[str, Digest]) -> dict[str, str]:
    """Why results do not count: they are not finite, or no other contender has the same.

    The only result of all contenders counts, as nothing speaks against it."""
    reasons = {name: "its result is not finite" for name, result in results.items() if not is_finite(result)}
    finite = [name for name in results if name not in reasons]
    for name in finite:
        others = [other for other in finite if other != name]
        if others and not any(agree(program, results[name], results[other]) for other in others):
            reasons[name] = f"its result differs from those of {' and '.join(others)}"
    return reasons
