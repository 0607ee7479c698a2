"""Context graphs: nodes by name, which users declare, edit and compile.

A `ContextGraph` compiles to a `Program`. All programs of a graph share one store of results, keyed by the content of
nodes, so that an edit keeps all results that it does not affect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakMethod, WeakSet

from livegrad.contexts.cache.disk import DiskCache
from livegrad.contexts.cache.interned_values import intern_argument
from livegrad.contexts.cache.store import CacheLimits, MemoStore
from livegrad.contexts.content import Constant
from livegrad.contexts.context_program import Program
from livegrad.contexts.declare import (
    ContextFunction,
    Names,
    NodeDeclaration,
    feature_names,
    make_declaration,
    require_parameters,
)
from livegrad.contexts.errors import ContextError
from livegrad.contexts.function_nodes import Kernel, Modifier, as_kernel
from livegrad.contexts.observe import Observer
from livegrad.diagnostics import caller_origin
from livegrad.ir.node import Function
from livegrad.ops.context import parse_feature
from livegrad.state import renew_lock_after_fork


class ContextGraph:
    """A graph of nodes that are evaluated in a context and cached by the features that they need.

    >>> graph = ContextGraph()
    >>> graph.node("wave", lambda ctx: ctx.animation_time % 1.0, extract="animation_time")
    'wave'
    >>> graph.node("scaled", lambda ctx, wave: wave * ctx.footprint, plain=["wave"], extract="footprint")
    'scaled'
    >>> program = graph.compile("scaled", root=["animation_time", "footprint"])
    >>> program.evaluate(animation_time=0.25, footprint=8)
    2.0
    """

    def __init__(self, *, limits: CacheLimits | None = None) -> None:
        self.nodes: dict[str, NodeDeclaration] = {}
        self.version = 0  # the number of edits: programs recompile when it changes
        self.store = MemoStore(limits)
        self._programs: WeakSet[Program] = WeakSet()
        self._lock = threading.RLock()
        renew_lock_after_fork(self, "_lock", threading.RLock)
        self.observer = Observer(self.store, WeakMethod(self._notify_programs))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.store.limits, tuple(self.snapshot()[1].values()))

    # --- building ----------------------------------------------------------------------------------------------------

    def node(
        self,
        name: str,
        function: Callable[..., Any] | Function | Kernel | ContextFunction,
        /,
        *,
        plain: Names = (),
        scoped: Names = (),
        extract: Names = (),
        inject: Names | Mapping[str, Names] = (),
        modify: Names | Mapping[str, Names] = (),
        optional: Names = (),
        extract_all: bool = False,
        version: str | None = None,
        persist: bool = False,
        **inputs: str,
    ) -> str:
        """Adds a node and returns its name. `function(ctx, *plain values, *scoped callables)` computes it.

        Plain inputs are evaluated in the context of the node and passed as values; scoped inputs are passed as
        callables that take a context. `extract` features can be read; `inject` features can be provided to scoped
        inputs; `modify` is both, and needed only if a scoped input needs it; `optional` features are None if absent. A
        livegrad function takes only plain inputs, and its features are derived from its code. A function from
        `context_node` has declared its features; its inputs are named after its parameters.
        """
        options = {
            "extract": extract,
            "inject": inject,
            "modify": modify,
            "optional": optional,
            "extract_all": extract_all,
            "version": version,
            "persist": persist,
        }
        if isinstance(plain, Mapping) or isinstance(scoped, Mapping):
            raise ContextError(
                "plain and scoped inputs must be lists, in the order of the function's parameters",
                where=caller_origin(),
                found="a dictionary",
                help='plain=["first", "second"]; functions of `context_node` take their inputs by keyword',
            )
        with self._lock:
            if name in self.nodes:
                raise ContextError(
                    f"node `{name}` already exists",
                    where=caller_origin(),
                    found=f"declared at {self.nodes[name].origin}",
                    help="use replace(...) to edit it",
                )
            return self._replace_node(
                _declare(name, function, feature_names(plain), feature_names(scoped), inputs, options)
            )

    def __repr__(self) -> str:
        names = list(self.nodes)
        listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"<context graph of {len(names)} nodes{': ' if names else ''}{listed}>"

    def value(self, name: str, value: Any, /) -> str:
        """Adds a node with a plain value, which `set` can change."""
        with self._lock:
            if name in self.nodes:
                raise ContextError(f"node `{name}` already exists", where=caller_origin(), help="use set(...)")
            return self._replace_node(make_declaration(name, Constant(intern_argument(value)), ()))

    def modifier(self, name: str, source: str, /, **changes: Callable[[Any], Any] | Function) -> str:
        """Adds a node that evaluates `source` with features changed: `modifier("late", "scene", animation_time=delay)`.

        A change that is a livegrad function has a derivative; see `Program.gradient`.

        >>> graph = ContextGraph()
        >>> _ = graph.node("clock", lambda ctx: ctx.animation_time, extract="animation_time")
        >>> _ = graph.modifier("late", "clock", animation_time=lambda time: time - 0.5)
        >>> graph.compile("late", root="animation_time").evaluate(animation_time=2.0)
        1.5
        """
        kernels = tuple((feature, as_kernel(change) or change) for feature, change in sorted(changes.items()))
        function = Modifier(kernels)  # type: ignore[arg-type]
        declaration = make_declaration(
            name, function, [(source, True)], modify=tuple(changes), extract=[str(f) for f in function.features]
        )
        with self._lock:
            if name in self.nodes:
                raise ContextError(f"node `{name}` already exists", where=caller_origin())
            return self._replace_node(declaration)

    # --- editing -----------------------------------------------------------------------------------------------------

    def set(self, name: str, value: Any, /) -> None:
        """Edits a value."""
        with self._lock:
            declaration = self._find_declaration(name)
            if not isinstance(declaration.function, Constant):
                raise ContextError(f"node `{name}` is not a value", where=caller_origin(), help="use replace(...)")
            self._replace_node(replace(declaration, function=Constant(intern_argument(value)), origin=caller_origin()))

    def replace(self, name: str, function: Any = None, /, **options: Any) -> None:
        """Edits a node. Arguments that are not given stay unchanged."""
        with self._lock:
            old = self._find_declaration(name)
            if options or isinstance(function, ContextFunction):
                del self.nodes[name]
                try:
                    self.node(
                        name, old.function if function is None else function, **{**_node_arguments(old), **options}
                    )
                except BaseException:
                    self.nodes[name] = old
                    raise
            elif function is not None:
                require_parameters(name, function, len(old.inputs))
                kernel = as_kernel(function)
                extracts = frozenset(kernel.features) if kernel else old.extracts
                declaration = replace(old, function=kernel or function, extracts=extracts, origin=caller_origin())
                self._replace_node(declaration)

    def remove(self, name: str, /) -> None:
        """Removes a node. Programs that need it can no longer be evaluated."""
        with self._lock:
            self._find_declaration(name)
            del self.nodes[name]
            self.version += 1
            self._notify_programs()

    def _find_declaration(self, name: str) -> NodeDeclaration:
        declaration = self.nodes.get(name)
        if declaration is None:
            raise ContextError(
                f"there is no node `{name}`",
                where=caller_origin(),
                expected="one of " + (", ".join(sorted(self.nodes)[:8]) or "none"),
            )
        return declaration

    def _replace_node(self, declaration: NodeDeclaration) -> str:
        self.nodes[declaration.name] = declaration
        self.version += 1
        self._notify_programs()
        return declaration.name

    def _notify_programs(self) -> None:
        with self._lock:
            for program in self._programs:
                program.leave_fast_path()

    # --- compiling ---------------------------------------------------------------------------------------------------

    def compile(self, output: str, /, *, root: Names = (), disk: DiskCache | None = None) -> Program:
        """Returns a program that computes `output` in contexts with the features of `root`.

        The program follows later edits of the graph. `disk` stores the results of nodes declared with `persist`.
        """
        program = Program(self, output, tuple(sorted(set(map(parse_feature, feature_names(root))))), disk)
        with self._lock:
            self._programs.add(program)
            program.leave_fast_path()  # an edit may have come before the program was registered
        return program

    def snapshot(self) -> tuple[int, dict[str, NodeDeclaration]]:
        """Returns the number of edits so far and the current nodes."""
        with self._lock:
            return self.version, dict(self.nodes)


def _restore(limits: CacheLimits, declarations: Sequence[NodeDeclaration]) -> ContextGraph:
    """A graph that another process has pickled, without its cached values."""
    graph = ContextGraph(limits=limits)
    graph.nodes = {declaration.name: declaration for declaration in declarations}
    return graph


def _declare(
    name: str,
    function: Any,
    plain: Sequence[str],
    scoped: Sequence[str],
    named: Mapping[str, str],
    options: dict[str, Any],
) -> NodeDeclaration:
    if isinstance(function, ContextFunction):
        return _declare_annotated(name, function, plain, scoped, named, options)
    if named:
        raise ContextError(
            f"node `{name}` is passed inputs by name, but its function does not declare any",
            where=caller_origin(),
            found=", ".join(named),
            help="decorate the function with context_node, or list the inputs in plain and scoped",
        )
    kernel = as_kernel(function)
    if kernel is not None:
        return _declare_kernel(name, kernel, plain, scoped, options)
    if not callable(function):
        raise ContextError(f"node `{name}` needs a function", where=caller_origin(), found=repr(function))
    return make_declaration(name, function, _inputs(plain, scoped), **options)


def _inputs(plain: Iterable[str], scoped: Iterable[str]) -> list[tuple[str, bool]]:
    return [*((source, False) for source in plain), *((source, True) for source in scoped)]


def _declare_kernel(
    name: str, kernel: Kernel, plain: Sequence[str], scoped: Sequence[str], options: dict[str, Any]
) -> NodeDeclaration:
    """Declares a livegrad function. Its features come from its code, so it cannot declare any."""
    declared = [key for key in ("extract", "inject", "modify", "optional", "extract_all") if options[key]]
    if scoped or declared:
        raise ContextError(
            f"node `{name}` is a livegrad function, which takes plain inputs and reads features with context(...)",
            where=caller_origin(),
            found="scoped inputs" if scoped else f"`{declared[0]}`",
            help="change features around it with modifier(...)",
        )
    if len(plain) != len(kernel.input_types):
        raise ContextError(
            f"the inputs of node `{name}` do not match the parameters of `{kernel.function.name}`",
            where=caller_origin(),
            expected=f"{len(kernel.input_types)} inputs",
            found=str(len(plain)),
        )
    persist = options["persist"]
    declaration = make_declaration(
        name, kernel, _inputs(plain, ()), extract=[str(feature) for feature in kernel.features]
    )
    return replace(declaration, persist=persist)


def _declare_annotated(
    name: str,
    function: ContextFunction,
    plain: Sequence[str],
    scoped: Sequence[str],
    named: Mapping[str, str],
    options: dict[str, Any],
) -> NodeDeclaration:
    """Declares a function that lists its features and names its inputs."""
    positional = {False: iter(plain), True: iter(scoped)}
    sources = {
        parameter: named.get(parameter) or next(positional[is_scoped], None)
        for parameter, is_scoped in function.parameters
    }
    missing = [parameter for parameter, source in sources.items() if source is None]
    extra = [*set(named) - set(sources), *positional[False], *positional[True]]
    if missing or extra:
        raise ContextError(
            f"the inputs of node `{name}` do not match the parameters of `{function.function.__name__}`",
            where=caller_origin(),
            expected=", ".join(sources) or "none",
            found=f"no `{missing[0]}`" if missing else f"`{extra[0]}` as well",
        )
    overrides = {key: value for key, value in options.items() if value}
    declaration = make_declaration(name, function.function, function.parameters, **{**function.options, **overrides})
    edges = [replace(edge, source=sources[edge.source]) for edge in declaration.inputs]
    return replace(declaration, inputs=tuple(edges))


def _node_arguments(declaration: NodeDeclaration) -> dict[str, Any]:
    """The arguments of `node` that recreate a declaration."""
    scoped = [edge for edge in declaration.inputs if edge.scoped]
    arguments: dict[str, Any] = {
        "plain": [edge.source for edge in declaration.inputs if not edge.scoped],
        "scoped": [edge.source for edge in scoped],
        "version": declaration.version,
        "persist": declaration.persist,
    }
    if not isinstance(declaration.function, Kernel):
        arguments |= {
            "extract": [str(feature) for feature in declaration.extracts],
            "optional": [str(feature) for feature in declaration.optional],
            "inject": {edge.source: edge.injects for edge in scoped if edge.injects},
            "modify": {edge.source: edge.modifies for edge in scoped if edge.modifies},
            "extract_all": declaration.extract_all,
        }
    return arguments
