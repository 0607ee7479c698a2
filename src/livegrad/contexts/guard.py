"""The arguments of a node function: a guarded context, and its scoped inputs as callables.

The context exposes only the features that the node declares. Evaluation creates one for every call of a node function;
contexts for scoped inputs are derived from it with `inject` and `modify`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from livegrad.contexts.cache.interned_values import ABSENT, Interned, NoExactKey, intern_value
from livegrad.contexts.errors import ContextError
from livegrad.diagnostics import caller_origin
from livegrad.ops.context import feature_named, parse_feature

if TYPE_CHECKING:
    from livegrad.contexts.evaluate import Call
    from livegrad.contexts.link import ScopedEdge

_UNDECLARED = -1


class NodeContext:
    """The context of one evaluation of one node: `ctx.footprint`, `ctx["index@1"]`, `ctx.inject(index=3)`.

    >>> from livegrad.contexts import ContextGraph
    >>> graph = ContextGraph()
    >>> _ = graph.node("body", lambda ctx: ctx.index * 10, extract="index")
    >>> def loop(ctx, body):
    ...     return [body(ctx.inject(index=index)) for index in range(3)]
    >>> _ = graph.node("loop", loop, scoped="body", inject="index")
    >>> graph.compile("loop").evaluate()
    [0, 10, 20]
    """

    __slots__ = ("_call", "_injected", "_interned")
    _call: Call
    _injected: dict[str, Any]
    _interned: dict[str, Interned]

    def __init__(self, call: Call, injected: dict[str, Any] | None = None) -> None:
        self._call = call
        self._injected = injected or {}
        self._interned = {}

    def __getitem__(self, feature: str) -> Any:
        """The value of a feature that the node declares; None for an absent optional feature.

        A feature that the node only modifies is None if no scoped input needs it.
        """
        if self._injected:
            level = parse_feature(feature)
            if level.feature in self._injected:
                if level.level == 0:
                    return self._injected[level.feature]
                feature = str(level._replace(level=level.level - 1))
        call = self._call
        position = call.unit.reads.get(feature, _UNDECLARED)
        if position == _UNDECLARED:
            return self._read_normalised(feature)
        return None if position is None else call.env[position].value

    def _read_normalised(self, feature: str) -> Any:
        text = str(parse_feature(feature))
        if text == feature:
            raise ContextError(
                f"node `{self._call.unit.name}` reads `{feature}`, which it does not declare",
                where=self._call.unit.declaration.origin,
                help=f'declare it with extract="{feature}"',
            )
        return self[text]

    def __getattr__(self, feature: str) -> Any:
        if feature.startswith("_"):
            raise AttributeError(feature)
        return self[feature]

    def inject(self, **features: Any) -> NodeContext:
        """Returns a context for scoped inputs in which these features have these values; a stack gets a new level 0."""
        unit = self._call.unit
        for name in features:
            if name not in unit.injects:
                raise ContextError(
                    f"node `{unit.name}` injects `{name}`, which it does not declare",
                    where=unit.declaration.origin,
                    help=f'declare it with inject="{name}"',
                )
            if name in self._injected and feature_named(name).stack:
                raise ContextError(
                    f"node `{unit.name}` pushes two levels of `{name}`",
                    where=unit.declaration.origin,
                    expected="at most one level per node",
                    help="build each context from the one the node was given",
                )
        return type(self)(self._call, {**self._injected, **features})

    def modify(self, **changes: Callable[[Any], Any]) -> NodeContext:
        """Returns a context for scoped inputs in which each feature is `change(value)`.

        `change` is not called if no scoped input needs the feature, or if it is optional and absent.
        """
        changed = {}
        for name, change in changes.items():
            value = self._value_or_absent(name)
            if value is not ABSENT:
                changed[name] = change(value)
        return self.inject(**changed)

    def _value_or_absent(self, name: str) -> Any:
        if name in self._injected:
            return self._injected[name]
        self[name]  # raises if the feature is not declared
        position = self._call.unit.reads[name]
        interned = ABSENT if position is None else self._call.env[position]
        return ABSENT if interned is ABSENT else interned.value

    def extract_all(self) -> NodeContext:
        """Returns the whole context, to pass on or to derive others from. It cannot be read, and adds no need."""
        unit = self._call.unit
        if not unit.declaration.extract_all:
            raise ContextError(
                f"node `{unit.name}` passes its whole context on without declaring it",
                where=unit.declaration.origin,
                help="declare it with extract_all=True",
            )
        return PassedContext(self._call, self._injected)

    def __repr__(self) -> str:
        reads = ", ".join(self._call.unit.reads)
        return f"<context of `{self._call.unit.name}`, which reads {reads or 'nothing'}>"


class PassedContext(NodeContext):
    """A context that a node passes on without reading it."""

    __slots__ = ()

    def __getitem__(self, feature: str) -> Any:
        if feature in self._injected:
            return self._injected[feature]
        raise ContextError(
            f"node `{self._call.unit.name}` reads `{feature}` from a context that it only passes on",
            where=self._call.unit.declaration.origin,
            help=f'declare extract="{feature}" and read it from the context that the node was given',
        )


class ScopedInput:
    """A scoped input of a node: call it with a context derived from that of the node."""

    __slots__ = ("_call", "_edge")

    def __init__(self, call: Call, edge: ScopedEdge) -> None:
        self._call, self._edge = call, edge

    def __call__(self, context: NodeContext, /) -> Any:
        call, edge = self._call, self._edge
        if not isinstance(context, NodeContext) or context._call is not call or not call.active:
            raise ContextError(
                f"node `{call.unit.name}` evaluates its input `{edge.child.name}` in a context that is not its own",
                where=call.unit.declaration.origin,
                expected="the context it was given in this call, or one made from it",
            )
        for name in context._injected:
            if name not in edge.writes:
                raise ContextError(
                    f"node `{call.unit.name}` injects `{name}` into its input `{edge.child.name}`, "
                    "which it does not declare",
                    where=call.unit.declaration.origin,
                )
        return call.query(edge, tuple([self._interned_feature(context, name) for name in edge.overlay])).value

    def _interned_feature(self, context: NodeContext, name: str) -> Interned:
        """The value that the scoped input gets for a feature that the node may inject or modify."""
        interned = context._interned.get(name)
        if interned is not None:
            return interned
        call, edge = self._call, self._edge
        if name not in context._injected:
            if name in edge.modifies:  # modifying is optional
                position = call.unit.reads[name]
                return ABSENT if position is None else call.env[position]
            if name in edge.required:
                raise ContextError(
                    f"node `{call.unit.name}` evaluates its input `{edge.child.name}` without injecting `{name}`",
                    where=call.unit.declaration.origin,
                    expected=f"a context made with ctx.inject({name}=...), as the node declares",
                )
            return ABSENT
        context._interned[name] = interned = intern_feature(
            name, context._injected[name], f"node `{call.unit.name}` injects"
        )
        return interned


def intern_feature(name: str, value: Any, who: str) -> Interned:
    """Interns the value of a feature; raises an error that names the feature if it is mutable."""
    try:
        return intern_value(value)
    except NoExactKey as error:
        raise ContextError(
            f"{who} a `{name}` that cannot be compared",
            where=caller_origin(),
            expected="a hashable value or an array of numbers",
            found=error.what,
            help="use a tuple, a frozen dataclass, or an array",
        ) from None
