"""Native code of derived functions, loaded from the disk cache without running the passes that derive them.

`implicit/bodies` uses it for bounds, gradients and masks of parts, whose functions may have thousands of nodes:
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

_MAX_PLANS = 32  # of one function: each holds an arena
_Forms = tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]  # dtype and shape of each argument


class DerivedFunction:
    """`derive(source)` compiled for the CPU. With the source, `name` must identify the derived function.

    >>> from livegrad.ir.function import trace
    >>> from livegrad.ir.types import f32
    >>> from livegrad.ops.control import map_over
    >>> over_all = DerivedFunction(trace(lambda x: x * x, f32), "over all", map_over)
    >>> over_all(np.arange(3, dtype=np.float32))
    array([0., 1., 4.], dtype=float32)
    """

    def __init__(self, source: Function, name: str, derive: Callable[[Function], Function]) -> None:
        self.source, self.name, self._derive = source, name, derive
        self._plans: dict[_Forms, CompiledPlan] = {}  # loaded from disk
        self._stored: set[_Forms] = set()  # the forms whose plan was stored there

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
        forms = _forms_of(arguments)
        plan = None if forms is None else self._plans.get(forms) or self._load(forms)
        if plan is None:
            results = self.compiled(*arguments)
            if forms is not None:
                self._store(forms, arguments)
            return results
        results = plan.run(arguments)
        return results[0] if len(results) == 1 else tuple(results)

    def _load(self, forms: _Forms) -> CompiledPlan | None:
        """Loads the plan that an earlier process stored, unless the function is derived in this one."""
        key = None if self.is_derived else _key(self.source, f"{self.name}\n{_text_of(forms)}")
        data = None if key is None else default_cache().load(key)
        serialised = None if data is None else decode(data)
        plan = None if serialised is None else CompiledPlan.from_serialised(serialised, run_function)
        if plan is not None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[forms] = plan
        return plan

    def _store(self, forms: _Forms, arguments: Sequence[Any]) -> None:
        """Stores the plan for these arguments on disk, for later processes."""
        if forms in self._stored:
            return
        self._stored.add(forms)
        serialised = self.compiled.self_contained_plan(arguments)
        key = None if serialised is None else _key(self.source, f"{self.name}\n{_text_of(forms)}")
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


def _forms_of(arguments: Sequence[Any]) -> _Forms | None:
    """The forms of arguments; None if one may need conversion."""
    forms = []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            if not argument.flags.carray:
                return None
        elif not isinstance(argument, np.generic):
            return None
        if argument.dtype.isbuiltin != 1:
            return None
        forms.append((argument.dtype, argument.shape))
    return tuple(forms)


def _text_of(forms: _Forms) -> str:
    return " ".join(f"{dtype.str}{shape}" for dtype, shape in forms)
