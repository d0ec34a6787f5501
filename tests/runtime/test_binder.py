"""The function that a kernel's call goes to: names that clash, keys, and what it hands over."""

import types

import numpy as np
import pytest

import redlang
from redlang.frontend.annotations import axes_text
from redlang.frontend.parser import parse
from redlang.frontend.syntax import Function
from redlang.runtime.arguments import Declared, describe
from redlang.runtime.binder import Hooks, Place, is_ragged, make_binder, ragged_dims
from redlang.source import SourceText

f32 = np.float32


def declared(text):
    source = SourceText(text)
    syntax = parse(source)
    assert isinstance(syntax, Function)
    return Declared(syntax, source, syntax.name)


def binder(text, captured=(), used=(), ready=None):
    """Return a binder whose launchers return what they were given, and its text."""
    calls = []

    def prepare(key, values, out, receiver):
        calls.append((key, values, out, receiver))
        return lambda *given: given

    hooks = Hooks(
        prepare, lambda **given: ("renewed", given), _reraise, {} if ready is None else ready
    )
    function, source = make_binder(declared(text), captured, used, hooks)
    return function, source, calls


def _reraise(error):
    raise error


SIMPLE = 'def f(x: "n", k: int = 3, *, scale: float = 0.5) -> "n": return x\n'
X = np.ones(4, f32)


def test_binds_and_converts():
    function, _, calls = binder(SIMPLE)
    assert function(X, scale=2) == (X, 3, 2.0)
    (_, values, out, receiver) = calls[0]
    assert values[1:] == (3, 2.0)
    assert isinstance(values[2], float)
    assert out is None
    assert receiver is None
    assert function(X, np.int8(4)) == (X, 4, 0.5)


def test_asks_again_only_for_what_is_new():
    ready: dict[object, object] = {}
    function, _, calls = binder(SIMPLE, ready=ready)
    function(X)
    ready[calls[0][0]] = lambda *given: "known"
    assert function(np.zeros(9, f32), 7) == "known"
    assert function(X.astype(float)) != "known"
    assert function(np.ones((4, 2), f32)[:, 0]) != "known"
    assert len(calls) == 3


def test_no_name_of_a_kernel_clashes_with_the_binders_own():
    text = 'def _key(_x: "n", __launch: "n", key: float = 1.0) -> "n": return _x\n'
    function, source, calls = binder(text)
    assert function(X, X) == (X, X, 1.0)
    assert "___key" in source
    assert len(calls) == 1
    kernel = redlang.compile('def out(_key: "n", _marks: float) -> "n": return _key * _marks\n')
    np.testing.assert_array_equal(kernel(X, 2.0), 2 * X)


def test_parameters_and_kernels_may_have_names_of_python():
    text = 'def type(type: "n", len: int, Exception: float, self: "n") -> "n":\n'
    kernel = redlang.compile(f"{text}    return type * Exception + len\n")
    np.testing.assert_array_equal(kernel(X, np.int8(3), 2, self=X), 2 * X + 3)
    np.testing.assert_array_equal(kernel.reference(X, np.int8(3), 2, self=X), 2 * X + 3)
    with pytest.raises(redlang.ArgumentError, match="Exception is '2', and must be a float"):
        kernel(X, 3, "2", X)


def test_a_parameter_called_out_is_only_that():
    kernel = redlang.compile('def f(out: "n") -> "n": return out * 2\n')
    np.testing.assert_array_equal(kernel(out=X), 2 * X)


def test_defaults_of_every_kind():
    kernel = redlang.compile(
        'def f(x: "n", a: float = inf, b: bool = True, c: int = -2) -> "n":\n'
        "    return where(b, minimum(x, a), x) + c\n"
    )
    np.testing.assert_array_equal(kernel(X), X - 2)


def test_outside_names_are_read_in_the_text():
    table = {"SCALE": 2.0, "cfg": types.SimpleNamespace(eps=3)}
    captured = [Place(table, "SCALE"), Place(table, "cfg.eps")]
    function, source, calls = binder('def f(x: "n") -> "n": return x\n', captured)
    assert function(X) == (X, 2.0, 3)
    assert "['cfg'].eps" in source
    table["SCALE"] = 5
    assert function(X) == (X, 5, 3)
    assert calls[0][0] != calls[1][0], "another kind is another key"
    del table["SCALE"]
    assert function(X)[0] == "renewed"


def test_a_callee_that_changed_renews_the_binder():
    table = {"g": object()}
    place = Place(table, "g")
    function, _, _ = binder('def f(x: "n") -> "n": return x\n', used=[(place, table["g"])])
    assert function(X) == (X,)
    table["g"] = object()
    assert function(X) == ("renewed", {"x": X, "out": None})


def test_ragged_dimensions_are_part_of_the_key():
    text = 'def f(x: "m (t g=4)") -> "m": return sum[t, g](x)\n'
    assert ragged_dims(declared(text)) == [("x", 1, 4, "(t g)")]
    function, _, calls = binder(text)
    for n in (8, 9):
        function(np.ones((2, n), f32))
    assert calls[0][0] != calls[1][0]
    assert not is_ragged(object(), 1, 4)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((3, 4), f32), "f32 (3, 4) of numpy"),
        (np.zeros(2, "c8"), "complex64 (2,) of numpy"),
        (0.5, "0.5"),
        (None, "None"),
        ([1], "a list"),
        (object(), "an object"),
    ],
)
def test_describes_any_argument(value, words):
    assert describe(value) == words


def test_axes_are_shown_as_they_are_written():
    (parameter,) = declared(
        'def f(x: "a (g r=4) 8 n=3") -> "a": return sum[g, r, n](x)\n'
    ).parameters
    assert axes_text(parameter.annotation) == "a (g r=4) 8 n=3"
