"""Examples in docstrings run, and every public name has a docstring."""

import doctest
import importlib
import inspect
import pkgutil
from operator import attrgetter

import pytest

import livegrad as lg
from livegrad.public_names import GROUPS, names_of

MODULES = [module.name for module in pkgutil.walk_packages(lg.__path__, "livegrad.") if "__main__" not in module.name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", [*lg.__all__, *(f"{group}.{name}" for group in GROUPS for name in names_of(group))])
def test_every_public_name_explains_itself(name: str) -> None:
    value = attrgetter(name)(lg)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        assert inspect.getdoc(value), f"livegrad.{name} has no docstring"
