"""What hints propose is right: each formula gives what the name gives in NumPy or SciPy."""

import re
from typing import Any

import numpy as np
import pytest
from scipy import special

import redlang
from redlang import std
from redlang.frontend.builtins import BUILTINS, OWN_LINE, RENAMED, nearest

TINY = {np.float32: 1e-30, np.float64: 1e-290}
HUGE = {np.float32: 3e38, np.float64: 1.7e308}
LARGEST_EXPONENT = {np.float32: 88.9, np.float64: 710.0}


def values(kind):
    """Numbers of both signs and all sizes, and those that are none."""
    sizes = [0, TINY[kind], 1e-20, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1, 1.5, 2, 3, 6, 20, 50]
    sizes += [LARGEST_EXPONENT[kind], 200, 1e5, 1e9, 1e20, HUGE[kind], np.inf]
    return np.array([*sizes, *(-size for size in sizes), np.nan], kind)


def softplus(x):
    return np.logaddexp(0.0, x)


def sinc(x):
    turned = np.pi * np.fmod(x, np.where(np.isinf(x), np.nan, 2.0))
    return np.where(x == 0, 1.0, np.where(np.isinf(x), np.nan, np.sin(turned) / np.pi / x))


def hypot(x, y):
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.hypot(x, y))


def softsign(x):
    return np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x)))


ELEMENTS: dict[str, Any] = {
    "power": np.power,
    "pow": np.power,
    "softplus": softplus,
    "logaddexp": np.logaddexp,
    "logsigmoid": lambda x: -softplus(-x),
    "relu": lambda x: np.maximum(x, 0),
    "square": np.square,
    "nan_to_num": lambda x: np.where(np.isnan(x), 0, x),
    "log1p": np.log1p,
    "expm1": np.expm1,
    "log10": np.log10,
    "exp10": lambda x: np.power(10.0, x),
    "cosh": np.cosh,
    "sinh": np.sinh,
    "tan": np.tan,
    "sinc": sinc,
    "hypot": hypot,
    "softsign": softsign,
    "silu": lambda x: x * np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
    "gelu": lambda x: x * special.ndtr(x),
    "reciprocal": lambda x: 1 / x,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
REDUCTIONS: dict[str, Any] = {
    "norm": np.linalg.norm,
    **{
        name: getattr(np, name)
        for name in RENAMED
        if name.startswith("nan") and name[3:] != "_to_num"
    },
}
PRODUCTS: dict[str, Any] = {
    "dot": np.dot,
    "matmul": np.matmul,
    "einsum": lambda a, b: np.einsum("k,k", a, b),
}
NEAR_ZEROS = {"gelu", "tan", "sinc", "logaddexp"}
"""Functions whose formula is exact beside the size of x, and near their zeros not of the result."""


def parts(hint):
    """Return the definitions of a hint and its expression, without what it says of them."""
    *lines, last = hint.split(OWN_LINE)
    return [*lines, "return " + re.sub(r", (exact|which|after) .*", "", last)]


def compiled(hint, axis="n"):
    text = "\n    ".join(parts(hint))
    given = [name for name in "xyab" if re.search(rf"\b{name}\b(?! =)", text)]
    given = [name for name in given if f"{name} = " not in text]
    annotated = ", ".join(f'{name}: "{axis}"' for name in given)
    kernel = redlang.compile(f"def hinted({annotated}):\n    {text}\n", names={"std": std})
    return kernel, given


FORMULAS = sorted(name for name, hint in RENAMED.items() if not re.fullmatch(r"\w+", hint))


def test_every_hint_is_a_name_or_a_formula_with_a_reference():
    names = {name for name in RENAMED if name not in FORMULAS}
    assert {RENAMED[name] for name in names} <= BUILTINS
    described = {"arange"}
    assert {*FORMULAS} == {*ELEMENTS, *REDUCTIONS, *PRODUCTS} | described


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(ELEMENTS))
def test_a_hinted_formula_is_right_for_numbers_of_all_sizes(name, kind):
    kernel, given = compiled(RENAMED[name])
    x = values(kind)
    if name == "tan":
        x = x[~(np.abs(x) > 1e5)]
    if len(given) == 2:
        x, y = (side.ravel().copy() for side in np.meshgrid(x, x))
        arguments = [x, y]
    else:
        arguments = [x]
    with np.errstate(all="ignore"):
        wide = [
            argument.astype(np.longdouble if name == "sinc" else np.float64)
            for argument in arguments
        ]
        wanted = ELEMENTS[name](*wide)
        expected = wanted.astype(kind) if wanted.dtype != bool else wanted
    got = kernel(*arguments)
    assert got.dtype == expected.dtype
    information = np.finfo(kind)
    beside = float(information.tiny)
    if name in NEAR_ZEROS:
        beside = 4 * float(information.eps) * np.clip(np.abs(np.nan_to_num(x)), 0, 10)
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(kind) - expected.astype(kind))
        near = error <= 8 * information.eps * np.abs(expected) + beside
    wrong = ~((got == expected) | (np.isnan(got) & np.isnan(expected)) | near & np.isfinite(got))
    shown = [(*(str(a[i]) for a in arguments), got[i], expected[i]) for i in np.nonzero(wrong)[0]]
    assert not shown


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_a_hinted_reduction_is_right(name):
    kernel, _ = compiled(RENAMED[name])
    x = np.array([2.0, np.nan, -3.5, 0.25, 4.0, -1.0])
    x = np.nan_to_num(x) if name == "norm" else x
    np.testing.assert_allclose(kernel(x), REDUCTIONS[name](x), rtol=1e-14)


@pytest.mark.parametrize("name", sorted(PRODUCTS))
def test_a_hinted_product_is_right(name, rng):
    kernel, _ = compiled(RENAMED[name], "k")
    a, b = rng.normal(size=(2, 9))
    np.testing.assert_allclose(kernel(a, b), PRODUCTS[name](a, b), rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lables", "labels"),
        ("label", "labels"),
        ("temprature", "temperature"),
        ("mena", "mean"),
        ("ine", "inf"),
        ("Exp", "exp"),
        ("eps", "epsilon"),
        ("logsoftmax", "log_softmax"),
        ("later", None),
        ("ratio", None),
        ("arctanh", None),
        ("n1", None),
    ],
)
def test_a_misspelled_name_is_like_the_one_that_is_meant(name, meant):
    known = ["tern", "labels", "temperature", "mean", "inf", "exp", "epsilon", "tanh", "rotation"]
    assert nearest(name, [*known, "log_softmax", "m2"]) == meant
