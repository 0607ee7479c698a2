"""Branches, early returns, conditional expressions, short-circuit operators, chained comparisons."""

import math

from tests.frontend.function.programs.registry import program


@program((1.5,), (-2.0,))
def absolute_by_branch(x: float) -> float:
    if x < 0:
        return -x
    return x


@program((0.5,), (1.5,), (7.0,))
def three_ways(x: float) -> float:
    if x < 1.0:
        y = x * x
    elif x < 5.0:
        y = math.sin(x)
    else:
        y = math.log(x)
    return y + 1.0


@program((2.0, 3.0), (3.0, 2.0))
def conditional_expression(x: float, y: float) -> float:
    return x * y if x < y else x - y * y


@program((4.0,), (-4.0,))
def untaken_branch_is_not_computed(x: float) -> float:
    return math.sqrt(x) if x > 0 else 0.5 * x


@program((2.0,), (0.0,), order=1)
def guarded_root(x: float) -> float:
    if x > 0.0:
        return math.sqrt(x)
    return 3.0 * x


@program((1.5,), (0.0,), order=1)
def short_circuit_protects_division(x: float) -> float:
    n = int(x)
    if n != 0 and 10 // n > 3:
        return x * x
    return x


@program((3.0,), (0.5,), (9.0,))
def chained_comparison(x: float) -> float:
    if 1.0 < x <= 5.0:
        return x**3
    return -x


@program((1.2, 0.3), (0.3, 1.2))
def values_from_both_branches(x: float, y: float) -> float:
    if x > y:
        a, b = x, y * 2.0
    else:
        a, b = y, x * 3.0
    return a * b + a


@program((2.0,), (0.2,), (-1.0,))
def nested_branches(x: float) -> float:
    r = 0.0
    if x > 0:
        if x > 1:
            r = x * x
        else:
            r = x
        r = r * 2.0
    else:
        r = -x
    return r + x


@program((2.0,), (0.2,), (-1.0,))
def return_inside_nested_branch(x: float) -> float:
    y = x
    if x > 0:
        if x > 1:
            return x * x * x
        y = 4.0 * x
    return y * y + x


@program((2.0, 1), (2.0, 0), (2.0, 5))
def early_returns_by_integer(x: float, kind: int) -> float:
    if kind == 0:
        return x
    if kind == 1:
        return math.exp(x)
    if kind == 2:
        return math.cos(x)
    return x / (1.0 + x * x)


@program((0.7, True), (0.7, False))
def boolean_parameter(x: float, flag: bool) -> float:
    return math.sin(x) if flag else math.cos(x)


@program((0.7,), (2.7,))
def boolean_variables(x: float) -> float:
    small = x < 1.0
    positive = x > 0.0
    both = small and positive
    if both or x > 5.0:
        return x * x
    if not small:
        return 2.0 * x
    return x


@program((0.5, 2.0), (0.0, 2.0))
def or_gives_a_value(x: float, y: float) -> float:
    return (x or y) * y


@program((0.5, 2.0), (0.0, 2.0))
def and_gives_a_value(x: float, y: float) -> float:
    return (x and y) + y * y


@program((1.0, 2.0), (2.0, 1.0))
def swap_in_branch(x: float, y: float) -> float:
    if x > y:
        x, y = y, x
    return x * x + 3.0 * y


@program((0.3,), (1.3,), (2.3,))
def branch_on_integer_part(x: float) -> float:
    k = int(x)
    if k == 0:
        return x * x
    elif k == 1:
        return x * 3.0
    return x + 7.0


@program((2.0,), (-2.0,))
def max_and_min(x: float) -> float:
    return max(x, 0.5) * min(x, 3.0) + max(0.1, x, 1.0)


@program((2.0, 3.0), (5.0, 3.0))
def temporaries_of_different_types(x: float, y: float) -> float:
    if x < y:
        t = x * y
        r = t
    else:
        t = (x, y)
        r = t[0] - t[1]
    return r * r


@program((2.0,), (0.5,))
def pass_statement(x: float) -> float:
    if x > 1.0:
        pass
    else:
        x = x * 10.0
    return x * x


@program((0.4,), (1.4,))
def comparison_results_as_numbers(x: float) -> float:
    return (x > 1.0) * x + (x <= 1.0) * x * x


@program((1.4, 3), (1.4, 8))
def membership(x: float, n: int) -> float:
    if n in (1, 3, 5):
        return x * n
    return x * x
