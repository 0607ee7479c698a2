"""Arithmetic of integer polynomials over numbered atoms, as plain tuples. Symbolic sizes use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Monomial = tuple[int, ...]  # the sorted indices of its atoms
Terms = tuple[tuple[Monomial, int], ...]  # sorted by monomial, no zero coefficients; a constant has the monomial ()


def constant_terms(value: int) -> Terms:
    """An integer as a polynomial."""
    return (((), value),) if value else ()


def add_terms(left: Terms, right: Terms) -> Terms:
    """The sum of two polynomials."""
    total = dict(left)
    for monomial, coefficient in right:
        total[monomial] = total.get(monomial, 0) + coefficient
    return tuple(sorted([(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]))


def multiply_terms(left: Terms, right: Terms) -> Terms:
    """The product of two polynomials.

    >>> multiply_terms((((0,), 2),), (((), 1), ((0,), 1)))
    (((0,), 2), ((0, 0), 2))
    """
    total: dict[Monomial, int] = {}
    for left_atoms, left_coefficient in left:
        for right_atoms, right_coefficient in right:
            monomial = tuple(sorted(left_atoms + right_atoms))
            total[monomial] = total.get(monomial, 0) + left_coefficient * right_coefficient
    return tuple(sorted([(monomial, coefficient) for monomial, coefficient in total.items() if coefficient]))


def split_constant(terms: Terms) -> tuple[Terms, int]:
    """Splits a polynomial into its non-constant terms and its constant."""
    if terms and not terms[0][0]:
        return terms[1:], terms[0][1]
    return terms, 0


def divide_terms(terms: Terms, divisor: Terms) -> Terms | None:
    """The exact quotient, if the divisor equals the polynomial or is a single monomial that divides every term."""
    if len(divisor) != 1:
        return (((), 1),) if terms == divisor else None
    ((factors, factor),) = divisor
    quotient = []
    for monomial, coefficient in terms:
        rest = list(monomial)
        for atom in factors:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % factor:
            return None
        quotient.append((tuple(rest), coefficient // factor))
    return tuple(sorted(quotient))


def evaluate_terms(terms: Terms, values: Sequence[int] | Mapping[int, int]) -> int:
    """Evaluates a polynomial for values of its atoms."""
    total = 0
    for monomial, coefficient in terms:
        for atom in monomial:
            coefficient *= values[atom]
        total += coefficient
    return total
