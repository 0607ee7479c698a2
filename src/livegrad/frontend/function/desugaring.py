"""Desugars `match`, and `:=` in loop conditions, to simpler statements.

Called by `python_source`. Supported patterns are numbers, names of constants, `_`, capture names, tuples of these, and
alternatives (`|`).
"""

from __future__ import annotations

import ast
import copy
import itertools
from typing import TypeVar

Definition = TypeVar("Definition", bound=ast.AST)


class UnsupportedPattern(Exception):
    """A pattern that functions do not support; `node` is its syntax tree."""

    def __init__(self, node: ast.AST) -> None:
        super().__init__("compiled functions do not support this pattern")
        self.node = node


def desugar(definition: Definition) -> Definition:
    """Replaces `match` by branches, and a loop condition with `:=` by a branch with `break` inside an endless loop.

    >>> tree = ast.parse("match n:\\n    case 1 | 2: x = 3\\n    case _: x = 4")
    >>> print(ast.unparse(desugar(tree)).replace("~", ""))
    subject1 = n
    if subject1 == 1 or subject1 == 2:
        x = 3
    else:
        x = 4
    """
    if not any(isinstance(node, ast.Match | ast.NamedExpr) for node in ast.walk(definition)):
        return definition
    return _Desugarer().visit(copy.deepcopy(definition))


class _Desugarer(ast.NodeTransformer):
    def __init__(self) -> None:
        self._subject_ids = itertools.count(1)

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        self.generic_visit(node)
        # Not a valid identifier, so it cannot clash with a variable of the program.
        name = f"~subject{next(self._subject_ids)}"
        first = _at(ast.Assign([_at(ast.Name(name, ast.Store()), node)], node.subject), node)
        rest: list[ast.stmt] = []
        for case in reversed(node.cases):
            rest = _case_branch(case, _at(ast.Name(name, ast.Load()), case.pattern), rest)
        return [first, *rest]

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        sets = any(isinstance(part, ast.NamedExpr) for part in ast.walk(node.test))
        if not sets or node.orelse or isinstance(node.test, ast.Call):
            return node
        leave = _at(ast.If(node.test, node.body, [_at(ast.Break(), node.test)]), node)
        return _at(ast.While(_at(ast.Constant(True), node.test), [leave], []), node)


def _case_branch(case: ast.match_case, subject: ast.expr, otherwise: list[ast.stmt]) -> list[ast.stmt]:
    test, names = _pattern_test(case.pattern, subject)
    captures: list[ast.stmt] = [
        _at(ast.Assign([_at(ast.Name(name, ast.Store()), case.pattern)], value), case.pattern) for name, value in names
    ]
    if case.guard is None:
        body = [*captures, *case.body]
        return [_at(ast.If(test, body, otherwise), case.pattern)] if test else body
    if test is None:
        return [*captures, _at(ast.If(case.guard, case.body, otherwise), case.guard)]
    if captures:
        raise UnsupportedPattern(case.guard)
    both = _at(ast.BoolOp(ast.And(), [test, case.guard]), case.guard)
    return [_at(ast.If(both, case.body, otherwise), case.pattern)]


def _pattern_test(pattern: ast.pattern, subject: ast.expr) -> tuple[ast.expr | None, list[tuple[str, ast.expr]]]:
    """The condition under which the subject matches (None: always), and the names with the parts that they capture."""
    match pattern:
        case ast.MatchValue(value=value):
            return _at(ast.Compare(subject, [ast.Eq()], [value]), pattern), []
        case ast.MatchSingleton(value=value):
            return _at(ast.Compare(subject, [ast.Is()], [_at(ast.Constant(value), pattern)]), pattern), []
        case ast.MatchAs(pattern=inner, name=name):
            test, names = (None, []) if inner is None else _pattern_test(inner, subject)
            return test, [*names, *([] if name is None else [(name, subject)])]
        case ast.MatchOr(patterns=patterns):
            parts = [_pattern_test(part, subject) for part in patterns]
            if any(names for _, names in parts):
                raise UnsupportedPattern(pattern)
            tests = [test for test, _ in parts if test is not None]
            return None if len(tests) < len(parts) else _combine_tests(ast.Or(), tests, pattern), []
        case ast.MatchSequence(patterns=patterns):
            tests, names = [], []
            for index, part in enumerate(patterns):
                position = _at(ast.Constant(index), part)
                test, inner = _pattern_test(part, _at(ast.Subscript(subject, position, ast.Load()), part))
                tests += [] if test is None else [test]
                names += inner
            return _combine_tests(ast.And(), tests, pattern), names
    raise UnsupportedPattern(pattern)


def _combine_tests(operator: ast.boolop, tests: list[ast.expr], at: ast.AST) -> ast.expr | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return _at(ast.BoolOp(operator, tests), at)


_Node = TypeVar("_Node", bound=ast.AST)


def _at(node: _Node, source: ast.AST) -> _Node:
    return ast.copy_location(node, source)
