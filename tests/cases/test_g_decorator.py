"""Where a kernel's text comes from, and what it captures."""

import linecache
import pickle
import textwrap
from typing import Any

import numpy as np
import pytest

import redlang
from redlang import std

f32 = np.float32
SCALE = 2.0
X = np.array([1, 2], f32)


@redlang.kernel
def scaled(x: "n") -> "n":
    return x * SCALE


@redlang.function
def helper(x):
    return x + 1


@redlang.kernel
def helped(x: "n") -> "n":
    return helper(x)


WINNERS = 2


@redlang.function(axes="e j")
def best(x, k):
    v, _ = topk[e:j](x, k)
    return sum[j](v)


@redlang.kernel
def winners(x: "n") -> ("", ""):
    v, _ = topk[n:j](x, WINNERS)
    return sum[j](v), best[n, l](x, WINNERS)


TEXT = textwrap.dedent(
    """
    import redlang

    @redlang.kernel
    def doubled(x: "n") -> "n":
        return x * 2
    """
)


def test_text_run_by_exec_needs_its_lines():  # C103
    names: dict[str, Any] = {}
    exec(compile(TEXT, "<cell 1>", "exec"), names)
    with pytest.raises(redlang.SourceUnavailableError) as caught:
        names["doubled"](X)
    assert "redlang.compile" in str(caught.value)


def test_text_run_by_exec_works_with_its_lines():  # C103
    linecache.cache["<cell 2>"] = (len(TEXT), None, TEXT.splitlines(keepends=True), "<cell 2>")
    names: dict[str, Any] = {}
    exec(compile(TEXT, "<cell 2>", "exec"), names)
    np.testing.assert_array_equal(names["doubled"](X), [2, 4])


def test_cells_of_ipython_work():  # C104, C105
    shell_module = pytest.importorskip("IPython.core.interactiveshell", reason="needs IPython")
    shell = shell_module.InteractiveShell()
    cell = TEXT + textwrap.dedent(
        """
        class Layer:
            @staticmethod
            @redlang.kernel
            def tripled(x: "n") -> "n":
                return x * 3
        """
    )
    shell.run_cell(cell, store_history=True).raise_error()
    np.testing.assert_array_equal(shell.user_ns["doubled"](X), [2, 4])
    np.testing.assert_array_equal(shell.user_ns["Layer"].tripled(X), [3, 6])


def test_a_captured_number_is_read_at_each_call(monkeypatch):  # C107
    np.testing.assert_array_equal(scaled(X), [2, 4])
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    np.testing.assert_array_equal(scaled(X), [5, 10])


def test_a_changed_number_of_winners_makes_another_kernel(monkeypatch):
    x = np.array([1, 4, 2, 8], f32)
    for k, right in ((2, 12), (3, 14), (np.int64(1), 8), (2, 12)):
        monkeypatch.setitem(globals(), "WINNERS", k)
        assert winners(x) == (right, right)
        assert winners.reference(x) == (right, right)


def test_a_keyword_misspelled_is_recognised():
    kernel = redlang.compile('def f(x: "n", *, eps: float = 1.0) -> "n": return x + eps')
    with pytest.raises(redlang.ArgumentError, match=r"did you mean eps\?"):
        kernel(X, epsilon=2.0)
    with pytest.raises(redlang.ArgumentError, match="it takes x, eps and out"):
        kernel(X, gain=2.0)


def test_closures_of_one_factory_keep_their_own_numbers():  # C108
    def make(factor):
        @redlang.kernel
        def multiplied(x: "n") -> "n":
            return x * factor

        return multiplied

    first, second = make(128), make(256)
    np.testing.assert_array_equal(second(X), 256 * X)
    np.testing.assert_array_equal(first(X), 128 * X)


def test_postponed_annotations_change_nothing():  # C109
    text = "from __future__ import annotations\n" + TEXT
    linecache.cache["<cell 3>"] = (len(text), None, text.splitlines(keepends=True), "<cell 3>")
    names: dict[str, Any] = {}
    exec(compile(text, "<cell 3>", "exec", dont_inherit=True), names)
    np.testing.assert_array_equal(names["doubled"](X), [2, 4])


def test_kernels_pickle():  # C111
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scaled))(X), scaled(X))
    compiled = redlang.compile('def half(x: "n") -> "n":\n    return x / 2\n')
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(compiled))(X), X / 2)


def test_local_kernels_pickle_with_cloudpickle():  # C111
    cloudpickle = pytest.importorskip("cloudpickle", reason="needs cloudpickle")
    factor = 7.0

    @redlang.kernel
    def local(x: "n") -> "n":
        return x * factor

    np.testing.assert_array_equal(pickle.loads(cloudpickle.dumps(local))(X), 7 * X)


def test_a_missing_source_is_no_error_before_the_first_call():  # C112
    names: dict[str, Any] = {}
    exec(compile(TEXT, "<frozen application>", "exec"), names)
    with pytest.raises(redlang.SourceUnavailableError, match="doubled"):
        names["doubled"](X)


def test_kernels_call_kernels_and_macros():  # C113
    @redlang.kernel
    def twice_scaled(x: "n") -> "n":
        return scaled(scaled(x))

    np.testing.assert_array_equal(twice_scaled(X), 4 * X)
    np.testing.assert_array_equal(helped(X), X + 1)


def test_a_python_function_in_a_kernel_is_named():  # C113
    def python_function(x):
        return x

    @redlang.kernel
    def calling(x: "n") -> "n":
        return python_function(x)

    with pytest.raises(redlang.UnknownNameError) as caught:
        calling(X)
    assert "python_function" in str(caught.value)
    assert "redlang.function" in str(caught.value)
    assert caught.value.span is not None


def test_a_wrong_extent_names_axis_sizes_and_argument():  # C115
    @redlang.kernel
    def contracted(x: "a c b", y: "a b c") -> "a":
        return sum[b, c](x * y)

    with pytest.raises(redlang.ArgumentError) as caught:
        contracted(np.ones((2, 3, 4), f32), np.ones((2, 5, 3), f32))
    message = str(caught.value)
    assert all(part in message for part in ("'b'", "4", "5", "y"))


def test_the_library_pickles_by_name():
    assert pickle.loads(pickle.dumps(std.softmax)) is std.softmax


def test_a_monoid_of_no_module_that_is_known_sees_its_own_names(tmp_path):
    path = tmp_path / "generated.py"
    path.write_text(
        textwrap.dedent(
            """
            import redlang
            START = 1.0

            @redlang.monoid
            class Product:
                def init():
                    return START
                def combine(a, b):
                    return a * b

            @redlang.kernel
            def kernel(x: "n") -> "":
                return Product[n](x)
            """
        )
    )
    names: dict[str, Any] = {"__name__": "not_imported_anywhere"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert names["kernel"](np.array([2, 3, 4], f32)) == 24
