"""Caches native code of derived functions on disk, so that later processes skip the passes that derive them.

`implicit/bodies` uses it for bounds, gradients and masks of parts. Their functions may have thousands of nodes:
deriving them takes seconds, loading their code milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from livegrad.ir.collecting import collection_paused
from livegrad.ir.digest import function_digest
from livegrad.ir.node import Function
from livegrad.runtime.cpu.compiled_plan import CompiledPlan
from livegrad.runtime.cpu.cpu_function import CpuFunction, compile_function, run_function
from livegrad.runtime.cpu.serialised_plan import decode, encode, serialised_plan_key
from livegrad.runtime.cpu.tier_up import background_compiler
from livegrad.runtime.object_cache import default_cache

_MAX_PLANS = 32  # of one function; each has an arena
_Signature = tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]  # dtype and shape of each argument


class DerivedFunction:
    """`derive(source)`, compiled for the CPU. `name` and the source must identify the derived function.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> from livegrad.ops.maps import map_over
    >>> over_all = DerivedFunction(trace(lambda x: x * x, f32), "over all", map_over)
    >>> over_all(np.arange(3, dtype=np.float32))
    array([0., 1., 4.], dtype=float32)
    """

    def __init__(self, source: Function, name: str, derive: Callable[[Function], Function]) -> None:
        self.source, self.name, self._derive = source, name, derive
        self._plans: dict[_Signature, CompiledPlan] = {}  # loaded from disk
        self._stored: set[_Signature] = set()  # the signatures of plans stored on disk

    def __repr__(self) -> str:
        return f"<compiled for the CPU: {self.name} of {self.source!r}>"

    @cached_property
    def compiled(self) -> CpuFunction:
        """The derived function itself."""
        with collection_paused():
            return compile_function(self._derive(self.source))

    @property
    def is_derived(self) -> bool:
        """Whether the passes have run in this process."""
        return "compiled" in self.__dict__

    def __call__(self, *arguments: Any) -> Any:
        signature = _signature_of(arguments)
        plan = None if signature is None else self._plans.get(signature) or self._load(signature)
        if plan is None:
            results = self.compiled(*arguments)
            if signature is not None:
                self._store(signature, arguments)
            return results
        results = plan.run(arguments)
        return results[0] if len(results) == 1 else tuple(results)

    def _load(self, signature: _Signature) -> CompiledPlan | None:
        """Loads the plan that an earlier process stored, unless this process has derived the function."""
        key = None if self.is_derived else _key(self.source, f"{self.name}\n{_signature_text(signature)}")
        data = None if key is None else default_cache().load(key)
        serialised = None if data is None else decode(data)
        plan = None if serialised is None else CompiledPlan.from_serialised(serialised, run_function)
        if plan is not None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[signature] = plan
        return plan

    def _store(self, signature: _Signature, arguments: Sequence[Any]) -> None:
        """Stores the plan for these arguments on disk, for later processes."""
        if signature in self._stored:
            return
        self._stored.add(signature)
        serialised = self.compiled.self_contained_plan(arguments)
        key = None if serialised is None else _key(self.source, f"{self.name}\n{_signature_text(signature)}")
        if serialised is not None and key is not None:
            cache = default_cache()
            background_compiler.current.later(lambda: cache.store(key, encode(serialised)))


def derived_number(source: Function, name: str, derive: Callable[[Function], int]) -> int:
    """`derive(source)`, cached on disk under the source and the name, as for a `DerivedFunction`."""
    key = _key(source, name)
    stored = None if key is None else default_cache().load(key)
    if stored is not None and stored.isdigit():
        return int(stored)
    with collection_paused():
        number = derive(source)
    if key is not None:
        cache = default_cache()
        background_compiler.current.later(lambda: cache.store(key, str(number).encode()))
    return number


def _key(source: Function, name: str) -> bytes | None:
    """The key of a derived value in the disk cache; None without a cache, or if the source has no digest."""
    digest = None if default_cache().settings.directory is None else function_digest(source)
    return None if digest is None else serialised_plan_key(hashlib.sha256(digest + name.encode()).digest(), {})


def _signature_of(arguments: Sequence[Any]) -> _Signature | None:
    """The signature of arguments; None if one may need conversion."""
    signature = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            if not argument.flags.carray:
                return None
        elif not isinstance(argument, np.generic):
            return None
        if argument.dtype.isbuiltin != 1:
            return None
        signature.append((argument.dtype, argument.shape))
    return tuple(signature)


def _signature_text(signature: _Signature) -> str:
    return " ".join(f"{dtype.str}{shape}" for dtype, shape in signature)
