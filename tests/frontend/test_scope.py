import math
import types

import ml_dtypes
import numpy as np
import pytest

from redlang.frontend.scope import (
    ClosureNames,
    Foreign,
    NamesScope,
    Number,
    as_number,
    entity,
    scope_of,
)
from tests.frontend.resolving import Outside


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, Number(True, "bool")),
        (3, Number(3, "int")),
        (0.5, Number(0.5, "float")),
        (np.bool_(False), Number(False, "bool")),
        (np.int8(-3), Number(-3, "int")),
        (np.uint64(2**63), Number(2**63, "int")),
        (np.float16(0.5), Number(0.5, "float")),
        (np.float64(math.inf), Number(math.inf, "float")),
        (ml_dtypes.bfloat16(1.5), Number(1.5, "float")),
    ],
)
def test_numbers_of_python_and_numpy_are_numbers(value, number):
    found = as_number(value)
    assert found is not None
    assert found == number
    assert type(found.value) is type(number.value)


@pytest.mark.parametrize("value", [None, "3", 1j, np.zeros(3), [1], math])
def test_anything_else_is_no_number(value):
    assert as_number(value) is None


def test_foreign_things_are_said_in_words():
    assert entity(np.zeros(3)) == Foreign("a ndarray", array=True)
    assert entity([]) == Foreign("a list")
    assert entity(math) == Foreign("the module math")
    assert entity(len) == Foreign("a Python function", callable=True)
    assert entity(dict) == Foreign("a Python class", callable=True)


def test_dotted_names_are_attributes():
    config = types.SimpleNamespace(model=types.SimpleNamespace(eps=1e-6))
    scope = NamesScope(({"cfg": config},))
    assert scope.find("cfg.model.eps") == Number(1e-6, "float")
    assert scope.find("cfg.model.epsilon") is None
    assert scope.find("nothing") is None
    config.model.eps = 2
    assert scope.find("cfg.model.eps") == Number(2, "int")


def test_inner_names_hide_outer_ones():
    scope = NamesScope(({"a": 1}, {"a": 2.0, "b": True}))
    assert scope.find("a") == Number(1, "int")
    assert scope.find("b") == Number(True, "bool")


def test_candidates_mean_something():
    config = types.SimpleNamespace(eps=1)
    macro = Outside("@redlang.function\ndef g(x):\n    return x")
    scope = NamesScope(({"K": 1, "g": macro, "text": "no", "_private": 1, "cfg": config},))
    assert sorted(scope.candidates("x")) == ["K", "g"]
    assert "cfg.eps" in list(scope.candidates("cfg.epss"))


FACTOR = 3


def test_a_functions_scope_is_its_closure_and_its_module():
    inner: float = 2

    def function():
        return inner + FACTOR + later

    assert isinstance(function, types.FunctionType)
    scope = scope_of(function)
    assert scope.find("inner") == Number(2, "int")
    assert scope.find("FACTOR") == Number(3, "int")
    assert scope.find("later") is None
    later = 7
    assert scope.find("later") == Number(7, "int")
    inner = 2.5
    assert scope.find("inner") == Number(2.5, "float")
    assert set(ClosureNames(function)) == {"inner", "later"}
    assert len(ClosureNames(function)) == 2
