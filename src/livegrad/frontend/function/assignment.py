"""Definite-assignment analysis: rejects a read of a name that is not assigned on every path.

In: the syntax tree of a function. Out: an error, or for each loop the names that are assigned after it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from livegrad.frontend.function.function_errors import FunctionError
from livegrad.frontend.function.python_source import Source

Names = frozenset[str]
State = Names | None  # the assigned names; None: unreachable


@dataclass
class _Jumps:
    """The states at the jumps out of one loop's body."""

    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)


def stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that statements assign, change in place or bind in loops, except the names of comprehensions."""
    nodes = list(nodes)
    changed = (
        root_name(node)
        for node in _same_scope(nodes)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store)
    )
    return bound_names(nodes) | {root.id for root in changed if root is not None}


def bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that statements bind; a name whose value is only changed in place is not bound."""
    names: set[str] = set()
    for node in _same_scope(nodes):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _same_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yields the nodes in the scope of the statements: not those of comprehensions, lambdas and nested functions."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.Lambda):
            continue
        yield node
        if not isinstance(node, ast.FunctionDef):
            pending.extend(ast.iter_child_nodes(node))


def root_name(node: ast.expr) -> ast.Name | None:
    """The variable of an lvalue: `name` in `name.field[index]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _meet(states: Iterable[State]) -> State:
    reached = [state for state in states if state is not None]
    return frozenset.intersection(*reached) if reached else None


class DefiniteAssignment:
    """Analyses a function in one walk; `assigned_after` maps each loop to the names that are assigned after it."""

    def __init__(
        self, source: Source, parameters: Iterable[str], runs_at_least_once: Callable[[ast.For | ast.While], bool]
    ) -> None:
        self._source = source
        self._locals = stored_names(source.body) | set(parameters)
        self._runs_at_least_once = runs_at_least_once  # decides from the loop's iterable
        self.assigned_after: dict[ast.For | ast.While, Names] = {}
        self._visit_block(source.body, frozenset(parameters), _Jumps())

    def _visit_block(self, statements: list[ast.stmt], state: State, jumps: _Jumps) -> State:
        for statement in statements:
            if state is None:
                return None
            state = self._visit_statement(statement, state, jumps)
        return state

    def _visit_statement(self, statement: ast.stmt, state: Names, jumps: _Jumps) -> State:
        match statement:
            case ast.If(test=test, body=body, orelse=orelse):
                assigned = self._check_reads(test, state)
                return _meet([self._visit_block(body, assigned, jumps), self._visit_block(orelse, assigned, jumps)])
            case ast.For() | ast.While():
                return self._visit_loop(statement, state, jumps)
            case ast.Break():
                jumps.breaks.append(state)
                return None
            case ast.Continue():
                jumps.continues.append(state)
                return None
            case ast.With() | ast.Try() | ast.ClassDef():
                return None  # the compiler rejects these statements
            case ast.Return() | ast.Raise():
                self._check_reads(statement, state)
                return None
            case ast.Assign(targets=targets, value=value):
                assigned = self._check_reads(value, state)
                for target in targets:
                    assigned = self._assign_target(target, assigned)
                return assigned
            case ast.AugAssign(target=target, value=value):
                assigned = self._check_reads(value, state)
                root = root_name(target)
                if root is not None:
                    self._check_name(root, assigned)
                return assigned
            case ast.FunctionDef(name=name, args=arguments):
                for default in (*arguments.defaults, *arguments.kw_defaults):
                    state = state if default is None else self._check_reads(default, state)
                return state | {name}
            case ast.AnnAssign(target=target, value=value):
                return state if value is None else self._assign_target(target, self._check_reads(value, state))
        return self._check_reads(statement, state)

    def _visit_loop(self, loop: ast.For | ast.While, state: Names, outer: _Jumps) -> State:
        jumps = _Jumps()
        if isinstance(loop, ast.For):
            entry = self._check_reads(loop.iter, state)
            inside = self._assign_target(loop.target, entry)
        else:
            entry = inside = self._check_reads(loop.test, state)
        ended = self._visit_block(loop.body, inside, jumps)
        endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and bool(loop.test.value)
        finished: State
        if endless:
            finished = None
        elif self._runs_at_least_once(loop):
            finished = _meet([ended, *jumps.continues])
        else:
            finished = entry
        if loop.orelse:
            finished = self._visit_block(loop.orelse, finished, outer)
        after = _meet([finished, *jumps.breaks])
        self.assigned_after[loop] = after if after is not None else frozenset()
        return after

    def _assign_target(self, target: ast.expr, state: Names) -> Names:
        match target:
            case ast.Name(id=name):
                return state | {name}
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    state = self._assign_target(element, state)
                return state
            case ast.Starred(value=value):
                return self._assign_target(value, state)
        return self._check_reads(target, state)

    def _check_reads(self, node: ast.AST, state: Names) -> Names:
        """Checks every name that an expression reads; returns the state with the names that `:=` assigns."""
        if isinstance(node, ast.Name):
            self._check_name(node, state)
            return state
        if isinstance(node, ast.NamedExpr):
            return self._assign_target(node.target, self._check_reads(node.value, state))
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            inside = state
            for generator in node.generators:
                inside = self._assign_target(generator.target, self._check_reads(generator.iter, inside))
                for condition in generator.ifs:
                    inside = self._check_reads(condition, inside)
            for element in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                inside = self._check_reads(element, inside)
            return state
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            return state
        for child in ast.iter_child_nodes(node):
            state = self._check_reads(child, state)
        return state

    def _check_name(self, name: ast.Name, state: Names) -> None:
        if name.id not in self._locals or name.id in state:
            return
        raise FunctionError(
            "LG103",
            f"`{name.id}` may be unset here",
            self._source.span(name),
            help=f"assign `{name.id}` before the branch or loop that sets it",
        )


def always_exits(statements: list[ast.stmt]) -> bool:
    """Whether control never reaches the end of the statements, judged by their syntax alone."""
    for statement in statements:
        if isinstance(statement, ast.Return | ast.Break | ast.Continue | ast.Raise):
            return True
        if isinstance(statement, ast.If) and always_exits(statement.body) and always_exits(statement.orelse):
            return True
    return False


def contains(statements: Iterable[ast.AST], kinds: type[ast.AST] | tuple[type[ast.AST], ...], loops: bool) -> bool:
    """Whether the statements contain one of these kinds; with `loops`, inner loops are searched too."""
    pending = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, kinds):
            return True
        if isinstance(node, ast.For | ast.While) and not loops:
            pending.extend(node.orelse)
            continue
        pending.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
    return False


def part_name(name: str, index: int) -> str:
    """The hidden variable with one part of a result that is a tuple."""
    return f"{name}.{index}"


def returned_parts(statements: Iterable[ast.AST]) -> set[str]:
    """The hidden variables in which `return` statements may keep the parts of their results."""
    names: set[str] = set()
    pending: list[tuple[ast.AST | None, str]] = [
        (node.value, "$return") for node in _same_scope(statements) if isinstance(node, ast.Return)
    ]
    while pending:
        value, name = pending.pop()
        if isinstance(value, ast.Tuple):
            parts = [(element, part_name(name, index)) for index, element in enumerate(value.elts)]
            names.update([part for _, part in parts])
            pending += parts
    return names
