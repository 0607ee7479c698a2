"""Node declarations: the features that a function reads, injects or modifies, given as arguments or annotations.

`context_node` turns an annotated function into a `ContextFunction`; `ContextGraph` turns either form into a
`NodeDeclaration`, the input of the compiler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any, Protocol, get_args, get_type_hints

from livegrad.contexts.errors import ContextError
from livegrad.contexts.guard import NodeContext
from livegrad.diagnostics import SourceLocation, caller_origin
from livegrad.ops.context import FeatureLevel, feature_named, parse_feature

Names = str | Iterable[str]


@dataclass(frozen=True)
class InputDeclaration:
    """One input. A plain input is a value; a scoped input is a callable that takes the context to evaluate it in."""

    source: str
    scoped: bool = False
    injects: frozenset[str] = frozenset()
    modifies: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NodeDeclaration:
    """A node of a context graph: a function, its inputs in the order of its parameters, and the features it reads."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[InputDeclaration, ...] = ()
    extracts: frozenset[FeatureLevel] = frozenset()
    optional: frozenset[FeatureLevel] = frozenset()
    extract_all: bool = False
    version: str | None = None
    persist: bool = False
    origin: SourceLocation | None = field(default=None, compare=False)

    @property
    def injects(self) -> frozenset[str]:
        return frozenset().union(*(edge.injects for edge in self.inputs))

    @property
    def modifies(self) -> frozenset[str]:
        return frozenset().union(*(edge.modifies for edge in self.inputs))


def feature_names(features: Names) -> tuple[str, ...]:
    """One name or several. A string is one name, not a sequence of letters."""
    names = (features,) if isinstance(features, str) or not isinstance(features, Iterable) else tuple(features)
    for name in names:
        if not isinstance(name, str):
            raise ContextError("pass inputs and features by keyword", where=caller_origin(), found=repr(name))
    return names


def feature_set(features: Names) -> frozenset[FeatureLevel]:
    return frozenset(map(parse_feature, feature_names(features)))


def written_features(features: Names) -> frozenset[str]:
    """Features to inject or modify. They have no level, because injection pushes one."""
    for name in feature_names(features):
        feature_named(name)
    return frozenset(feature_names(features))


def require_parameters(name: str, function: Callable[..., Any], inputs: int) -> None:
    """Rejects a Python function that cannot be called with a context and this many inputs."""
    if not isinstance(function, FunctionType | MethodType):
        return
    signature = inspect.signature(function)
    try:
        signature.bind(*[None] * (1 + inputs))
    except TypeError as error:
        raise ContextError(
            f"the function of node `{name}` cannot be called with a context and {inputs} inputs",
            where=caller_origin(),
            found=f"{getattr(function, '__name__', 'function')}{signature}",
            help=str(error),
        ) from None


def make_declaration(
    name: str,
    function: Callable[..., Any],
    inputs: Iterable[tuple[str, bool]],
    *,
    extract: Names = (),
    inject: Names | Mapping[str, Names] = (),
    modify: Names | Mapping[str, Names] = (),
    optional: Names = (),
    extract_all: bool = False,
    version: str | None = None,
    persist: bool = False,
) -> NodeDeclaration:
    """Checks the arguments of a declaration. `inject` and `modify` apply to all scoped inputs, or by name to one."""
    where = caller_origin()
    if not isinstance(name, str):
        raise ContextError("a node needs a name", where=where, found=repr(name))
    pairs = tuple(inputs)
    require_parameters(name, function, len(pairs))
    scoped = {source for source, is_scoped in pairs if is_scoped}
    for features in (inject, modify):
        targets = set(features) if isinstance(features, Mapping) else set()
        if (features and not scoped) or targets - scoped:
            unknown = ", ".join(sorted(targets - scoped)) or ", ".join(feature_names(features))
            raise ContextError(
                f"node `{name}` has no scoped input to receive `{unknown}`",
                where=where,
                help="name the input in `scoped`; plain inputs see the context of the caller",
            )
    if persist and version is None:
        raise ContextError(
            f"node `{name}` cannot be stored on disk without a version",
            where=where,
            help='pass version="1", and change it whenever the function changes',
        )
    edges = []
    for source, is_scoped in pairs:
        modifies = _edge_features(modify, source) if is_scoped else frozenset()
        injects = _edge_features(inject, source) - modifies if is_scoped else frozenset()
        edges.append(InputDeclaration(source, is_scoped, injects, modifies))
    return NodeDeclaration(
        name=name,
        function=function,
        inputs=tuple(edges),
        extracts=feature_set(extract),
        optional=feature_set(optional) - feature_set(extract),
        extract_all=extract_all,
        version=version,
        persist=persist,
        origin=where,
    )


def _edge_features(features: Names | Mapping[str, Names], source: str) -> frozenset[str]:
    return written_features(features.get(source, ()) if isinstance(features, Mapping) else features)


# --- annotations -----------------------------------------------------------------------------------------------------


class _Marker:
    def __init__(self, *features: str) -> None:
        self.features = features

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.features))})"


class Extract(_Marker):
    """`ctx: Annotated[NodeContext, Extract("footprint")]`: the function reads the feature.

    >>> Extract("real_time", "index@1")
    Extract('real_time', 'index@1')
    """


class Inject(_Marker):
    """`ctx: Annotated[NodeContext, Inject("index")]`: the function provides the feature to its scoped inputs.

    >>> Inject("index")
    Inject('index')
    """


class Modify(_Marker):
    """`ctx: Annotated[NodeContext, Modify("footprint")]`: extract and inject; needed only if a scoped input needs it.

    >>> Modify("footprint")
    Modify('footprint')
    """


class Optional(_Marker):
    """`ctx: Annotated[NodeContext, Optional("index")]`: the function reads the feature, or None if it is absent."""


class ExtractAll(_Marker):
    """`ctx: Annotated[NodeContext, ExtractAll()]`: the function passes its context on; this adds no need.

    >>> ExtractAll()
    ExtractAll()
    """


class Scoped(Protocol):
    """The annotation of a scoped input: call it with the context to evaluate it in.

    >>> @context_node
    ... def twice(ctx, body: Scoped):
    ...     return body(ctx) + body(ctx)
    >>> twice
    <context node twice(body: scoped)>
    """

    def __call__(self, context: NodeContext, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class ContextFunction:
    """A function with its declared features. `ContextGraph.node` accepts it, with inputs by name.

    >>> from typing import Annotated
    >>> @context_node
    ... def use_index(ctx: Annotated[NodeContext, Extract("index")], value: float) -> float:
    ...     return value * ctx.index
    >>> use_index
    <context node use_index(value), extract index>
    """

    function: Callable[..., Any]
    parameters: tuple[tuple[str, bool], ...]  # name, and whether it is scoped
    options: dict[str, Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        names = ", ".join(f"{name}: scoped" if scoped else name for name, scoped in self.parameters)
        declared = [f", {key} {' '.join(feature_names(self.options[key]))}" for key in _LISTS if self.options.get(key)]
        return f"<context node {self.function.__name__}({names}){''.join(declared)}>"


_LISTS = ("extract", "inject", "modify", "optional")
_MARKERS: dict[type, str] = {Extract: "extract", Inject: "inject", Modify: "modify", Optional: "optional"}


def context_node(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turns a function into a node of context graphs. Declare features by annotating `ctx`, or as arguments here.

    The first parameter is the context. The other parameters are inputs: plain by default, scoped if annotated with
    `Scoped`.

    >>> @context_node(inject="index")
    ... def repeat(ctx, times, body: Scoped):
    ...     return [body(ctx.inject(index=index)) for index in range(times)]
    >>> repeat
    <context node repeat(times, body: scoped), inject index>
    """
    if function is None:
        return lambda annotated: context_node(annotated, **options)
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
        raise ContextError(
            f"`{getattr(function, '__name__', function)}` cannot be a context node",
            where=caller_origin(),
            expected="a function of a context and a fixed number of inputs",
        )
    hints = get_type_hints(function, include_extras=True)
    features = {
        key: [*feature_names(options.get(key, ()))] for key in _LISTS if not isinstance(options.get(key), Mapping)
    }
    extract_all = bool(options.get("extract_all"))
    for marker in get_args(hints.get(parameters[0].name))[1:]:
        if isinstance(marker, ExtractAll):
            extract_all = True
        elif type(marker) in _MARKERS:
            features[_MARKERS[type(marker)]].extend(marker.features)
    declared = {**options, **{key: tuple(names) for key, names in features.items()}, "extract_all": extract_all}
    inputs = tuple((parameter.name, hints.get(parameter.name) is Scoped) for parameter in parameters[1:])
    return ContextFunction(function, inputs, declared)
