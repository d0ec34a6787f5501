"""Kernels as their users meet them: calls, arguments, names from outside, pickles, looks inside."""

# ruff: noqa: N805  # definitions in the language have no self

import gc
import inspect
import pickle
import re
import subprocess
import sys
import textwrap
import traceback
import types
import weakref

import cloudpickle
import ml_dtypes
import numpy as np
import pytest

import redlang
from redlang.targets import nvvm
from redlang.testing import check
from tests.with_torch import torch

f32 = np.float32
X = np.arange(6, dtype=f32).reshape(2, 3)

OFFSET = 2
CONFIG = types.SimpleNamespace(eps=1.0, nested=types.SimpleNamespace(scale=3))
TABLE = np.ones(3)


@redlang.kernel
def shifted(x: "m n") -> "m":
    """Sum of rows, shifted."""
    return sum[n](x) + OFFSET


@redlang.kernel
def scaled(x: "m n", w: "n", factor: float = 2.0, *, times: int = 1, flip: bool = False) -> "m":
    s = sum[n](x * w) * factor * times
    return where(flip, -s, s)


@redlang.function
def squared(x):
    return x * x


@redlang.kernel
def energy(x: "m n") -> "m":
    return sum[n](squared(x))


@redlang.kernel
def extremes(x: "m n") -> ("m", "m"):
    return max[n](x), argmax[n](x)


@redlang.kernel
def plus(x: "m n") -> "m n":
    return x + 1


class Layer:
    def __init__(self, gain):
        self.gain = gain

    @redlang.kernel
    def amplified(self, x: "n") -> "n":
        return x * self.gain

    @redlang.kernel
    def total(self, x: "n") -> "":
        return sum[n](x) * self.gain

    @staticmethod
    @redlang.kernel
    def doubled(x: "n") -> "n":
        return x * 2

    @redlang.kernel
    def tripled(x: "n") -> "n":
        return x * 3


def test_arguments_bind_as_in_python():
    w = np.array([1, 2, 3], f32)
    np.testing.assert_array_equal(scaled(X, w), [16, 52])
    np.testing.assert_array_equal(scaled(w=w, x=X, factor=1), [8, 26])
    np.testing.assert_array_equal(scaled(X, w, 1.0, times=3, flip=True), [-24, -78])


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((), {}, "missing 2 required positional arguments: 'x' and 'w'"),
        ((X,), {}, "missing 1 required positional argument: 'w'"),
        ((X, X[0], 1.0, 2), {}, "takes from 2 to 3 positional arguments but 4 were given"),
        ((X, X[0], 1.0, 2), {}, "out are given by name: scaled(..., "),
        ((X, X[0]), {"scale": 2}, "unexpected keyword argument 'scale'"),
        ((X, X[0]), {"x": X}, "multiple values for argument 'x'"),
    ],
)
def test_arguments_that_do_not_bind_are_named_with_the_signature(arguments, keywords, words):
    for function in (scaled, scaled.reference):
        with pytest.raises(redlang.ArgumentError) as caught:
            function(*arguments, **keywords)
        assert words in str(caught.value)
        assert "kernel scaled(x: 'm n', w: 'n', factor: float=2.0" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "keywords", "kind", "words"),
    [
        (([1, 2], X[0]), {}, redlang.ArgumentError, ("x is a list", "np.asarray(x)")),
        ((X, 2.0), {}, redlang.ArgumentError, ("w is 2.0, and must be an array",)),
        ((X, None), {}, redlang.ArgumentError, ("w is None",)),
        ((X[0], X[0]), {}, redlang.ArgumentError, ("x has 1 dimension", "(3,)", "'m n'")),
        ((X, X[0, :2]), {}, redlang.ArgumentError, ("w has extent 2 along axis 'n'", "x has 3")),
        ((X.astype("c8"), X[0]), {}, redlang.DTypeError, ("x holds complex64",)),
        ((X.astype(">f4"), X[0]), {}, redlang.DTypeError, ("byte order", "newbyteorder")),
        ((X, X[0], "2"), {}, redlang.ArgumentError, ("factor is '2', and must", "float(factor)")),
        ((X, X[0], "2" * 99), {}, redlang.ArgumentError, ("factor is a str, and must be a float",)),
        ((X, X[0], None), {}, redlang.ArgumentError, ("factor is None", "pass nan and test it")),
        ((X, X[0], 1j), {}, redlang.ArgumentError, ("factor is 1j", "pass factor.real, or both")),
        ((X, X[0], [2]), {}, redlang.ArgumentError, ("factor is a list", 'its axes, factor: "n"')),
        ((X, X[0], {}), {}, redlang.ArgumentError, ("factor is a dict", "pass a number of Python")),
        ((X, X[0], 10**400), {}, redlang.ArgumentError, ("too large", "floats end at 1.8e308")),
        ((X, X[0]), {"times": b"2"}, redlang.ArgumentError, ("times is a bytes", "int(times)")),
        ((X, X[0]), {"times": None}, redlang.ArgumentError, ("times is None", "such as -1")),
        (
            (X, X[0]),
            {"flip": "yes"},
            redlang.ArgumentError,
            ("flip is 'yes'", "True or False; bool"),
        ),
        (
            (X, X[0]),
            {"flip": None},
            redlang.ArgumentError,
            ("flip is None", "pass True or False and"),
        ),
        ((X, X[0]), {"times": 1.5}, redlang.ArgumentError, ("times is 1.5", "int(times)")),
        ((X, X[0]), {"times": 2**63}, redlang.ArgumentError, ("fit i64", 'it times: "u64[]", or')),
        (
            (X, X[0]),
            {"times": 2**64},
            redlang.ArgumentError,
            ("fit i64", "times as a float, which"),
        ),
        ((X, X[0]), {"flip": 1}, redlang.ArgumentError, ("flip is 1", "bool(flip)")),
        ((X, X[0], X[0]), {}, redlang.ArgumentError, ("factor is an array of shape (3,)",)),
        ((np.ma.masked_array(X), X[0]), {}, redlang.ArgumentError, ("masked array", "filled")),
    ],
)
def test_what_is_wrong_with_an_argument_is_said_with_its_place(arguments, keywords, kind, words):
    for _ in range(2):
        with pytest.raises(kind) as caught:
            scaled(*arguments, **keywords)
        message = str(caught.value)
        for word in words:
            assert word in message
        assert re.search(r"test_kernel\.py:\d+:\d+: (call|types): ", message)
        assert "kernel scaled(" in message


@pytest.mark.parametrize(
    ("words", "options"),
    [(("gradient",), {"requires_grad": True}), (("meta", "device"), {"device": "meta"})],
)
def test_what_is_wrong_with_a_tensor_is_said_with_its_place(words, options):
    x = torch.ones(2, 3, **options)
    for _ in range(2):
        with pytest.raises(
            redlang.ArgumentError, match=r"test_kernel\.py:\d+:\d+: call: "
        ) as caught:
            scaled(x, X[0])
        assert all(word in str(caught.value) for word in words)


def test_a_warm_kernel_still_checks_shapes():
    scaled(X, X[0])
    with pytest.raises(redlang.ArgumentError, match="w has extent 2"):
        scaled(X, X[0, :2].copy())
    with pytest.raises(redlang.ArgumentError, match="x has 3 dimensions"):
        scaled(X[None], X[0])


def test_a_number_that_makes_an_extent_is_looked_at_with_the_shapes(monkeypatch):
    monkeypatch.setattr("redlang.runtime.launcher.KEPT_SHAPES", 2)
    spread = redlang.compile('def f(x: "m", k: int) -> "n m":\n    n = axis(k)\n    return n + x\n')
    for count in (2, 3, 4, 2, 0):
        np.testing.assert_array_equal(spread(X[0], count), np.arange(count)[:, None] + X[0])
    with pytest.raises(redlang.ArgumentError, match="k"):
        spread(X[0], -1)


def test_a_device_without_a_backend_says_so():
    with pytest.raises(redlang.BackendError, match="no backend for arrays on meta"):
        energy(torch.ones(2, 2, device="meta"))


def test_scalars_come_in_every_form_of_number():
    expected = scaled(X, X[0], 2.0, times=2, flip=True)
    for factor in (2, f32(2), np.float16(2), np.int8(2), np.array(2.0), torch.tensor(2.0)):
        for times in (np.int64(2), np.uint8(2), np.array(2), torch.tensor(2)):
            result = scaled(X, X[0], factor, times=times, flip=np.bool_(True))
            np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(
        scaled(X, X[0], ml_dtypes.bfloat16(2), times=2, flip=True), expected
    )


def test_results_are_of_the_first_arrays_kind():
    assert isinstance(energy(X), np.ndarray)
    tensor = energy(torch.from_numpy(X))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), energy(X))
    mixed = scaled(torch.from_numpy(X), X[0])
    assert isinstance(mixed, torch.Tensor)
    assert isinstance(
        energy(torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)), torch.Tensor
    )
    with torch.no_grad():
        assert energy(torch.ones(2, 2, requires_grad=True)).tolist() == [2, 2]


class Wrapped:
    """An array of a library that has DLPack and a namespace, and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self):
        return types.SimpleNamespace(
            from_dlpack=lambda x: Wrapped(torch.utils.dlpack.from_dlpack(x))
        )


def test_arrays_of_unknown_libraries_go_through_dlpack():
    result = scaled(Wrapped(torch.from_numpy(X)), Wrapped(torch.from_numpy(X[0].copy())))
    assert isinstance(result, Wrapped)
    np.testing.assert_array_equal(result.tensor.numpy(), scaled(X, X[0]))
    values, indices = extremes(Wrapped(torch.from_numpy(X)))
    assert isinstance(values, Wrapped)
    assert isinstance(indices, Wrapped)
    assert isinstance(scaled(X, Wrapped(torch.from_numpy(X[0].copy()))), np.ndarray)
    reference = energy.reference(Wrapped(torch.from_numpy(X)))
    np.testing.assert_array_equal(reference, energy(X))


def test_half_precision_arrays_of_unknown_libraries_too():
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        result = plus(Wrapped(torch.ones(2, 3).to(dtype)))
        # NumPy exports bf16 and f8 to nobody, so they come back as NumPy arrays.
        values = result.tensor.numpy() if isinstance(result, Wrapped) else result
        np.testing.assert_array_equal(values.astype(f32), np.full((2, 3), 2))


class Lazy:
    """A value that has promised an array and has none: a traced one, for example."""

    shape = (2, 3)

    def __dlpack__(self, **keywords):
        raise BufferError("no memory yet")


def test_an_array_without_memory_says_so():
    with pytest.raises(redlang.ArgumentError, match="x cannot be read") as caught:
        energy(Lazy())
    assert "no tracing" in str(caught.value)


@redlang.monoid
class LogSum:
    """Sums of exponentials that do not overflow."""

    def init():
        return -inf, 0.0

    def lift(x):
        return x, 1.0

    def combine(a, b):
        top = maximum(a[0], b[0])
        safe = where(top == -inf, 0, top)
        return top, a[1] * exp(a[0] - safe) + b[1] * exp(b[0] - safe)

    def finish(a):
        return a[0] + log(a[1])


@redlang.kernel
def lse(x: "m n") -> "m":
    return LogSum[n](x)


def test_a_monoid_of_the_users_reduces_and_pickles():
    expected = np.log(np.exp(X.astype(float)).sum(axis=1))
    np.testing.assert_allclose(lse(X), expected, rtol=1e-6)
    np.testing.assert_allclose(lse.reference(X), expected, rtol=1e-12)
    assert pickle.loads(pickle.dumps(LogSum)) is LogSum
    assert repr(LogSum) == "<redlang monoid LogSum>"


def test_fusion_can_be_required():
    text = 'def f(x: "m n") -> "m":\n    return sum[n](abs(x - mean[n](x)))\n'
    np.testing.assert_allclose(redlang.compile(text)(X), [2, 2], rtol=1e-6)
    strict = redlang.compile(text, fuse="require")
    for use in (lambda: strict(X), strict.explain):
        with pytest.raises(redlang.FusionError, match="sum"):
            use()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_small_floats_go_in_and_out(dtype):
    x = X.astype(dtype)
    np.testing.assert_array_equal(plus(x).astype(f32), X + 1)
    assert plus(x).dtype == dtype
    names = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    kind = names.get(np.dtype(dtype).name, torch.float8_e4m3fn)
    tensor = torch.from_numpy(X).to(kind)
    assert plus(tensor).dtype == kind
    np.testing.assert_array_equal(plus(tensor).float().numpy(), X + 1)


def test_results_go_where_out_says():
    out = np.zeros(4, f32)[::2]
    assert energy(X, out=out) is out
    np.testing.assert_array_equal(out, [5, 50])
    pair = np.zeros(2, f32), np.zeros(2, np.int64)
    result = extremes(X, out=pair)
    assert result[0] is pair[0]
    np.testing.assert_array_equal(pair[1], [2, 2])
    tensor = torch.zeros(2)
    assert energy(X, out=tensor) is tensor
    assert tensor.tolist() == [5, 50]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: energy(X, out=np.zeros(3, f32)), "out has shape (3,), and the result has (2,)"),
        (lambda: energy(X, out=np.zeros(2)), "out holds f64, and the result is f32"),
        (lambda: energy(X, out=[X[0], X[1]]), "of 2 arrays, and the kernel returns one array"),
        (lambda: energy(X, out=(np.zeros(2, f32),)), "out is a tuple or list of 1 array, and the"),
        (lambda: energy(X, out=(np.zeros(2, f32),)), "hint: pass the array itself: out=array"),
        (lambda: energy(X, out=[[0.0, 0.0]]), "out[0] is a list, and must be an array"),
        (lambda: energy(X, out=[[0.0, 0.0]]), "hint: results are stored in arrays: out=array, or"),
        (lambda: extremes(X, out=np.zeros(2, f32)), "returns 2 arrays"),
        (lambda: energy(X, out=3.0), "out is 3.0, and must be an array"),
        (lambda: energy(X, out=np.broadcast_to(f32(0), 2)), "out is read-only"),
        (lambda: plus(X, out=X[::-1]), "out shares memory with x"),
        (
            lambda: plus(X, out=np.lib.stride_tricks.as_strided(X, (2, 3), (0, 4))),
            "that share memory",
        ),
        (lambda: extremes(X, out=(X[:, 0], np.zeros(2, np.int64))), "out[0] shares memory with x"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(call, words):
    before = X.copy()
    for _ in range(2):
        with pytest.raises((redlang.ArgumentError, redlang.DTypeError)) as caught:
            call()
        assert words in str(caught.value)
    np.testing.assert_array_equal(X, before)


def test_a_tuple_of_one_result_is_refused_warm_as_cold():
    out = np.zeros(2, f32)
    energy(X, out=out)
    for given in ((out,), [out]):
        with pytest.raises(redlang.ArgumentError, match="returns one array"):
            energy(X, out=given)


def test_an_array_may_be_its_own_result():
    x = X.copy()
    assert plus(x, out=x) is x
    np.testing.assert_array_equal(x, X + 1)


def test_numbers_from_outside_are_read_at_each_call(monkeypatch):
    np.testing.assert_array_equal(shifted(X), [5, 14])
    for value in (10, 0.5, True, f32(1.5), np.int8(3)):
        monkeypatch.setitem(globals(), "OFFSET", value)
        np.testing.assert_array_equal(shifted(X), X.sum(axis=1) + float(value))
        np.testing.assert_array_equal(shifted.reference(X), X.sum(axis=1) + float(value))


def test_dotted_numbers_are_followed_at_each_call():
    @redlang.kernel
    def dotted(x: "n") -> "n":
        return x * CONFIG.eps + CONFIG.nested.scale

    np.testing.assert_array_equal(dotted(X[0]), [3, 4, 5])
    CONFIG.eps = 10
    try:
        np.testing.assert_array_equal(dotted(X[0]), [3, 13, 23])
    finally:
        CONFIG.eps = 1.0


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.ones(3), "array from outside"), ("text", "str"), (2**70, "define it as a float")],
)
def test_a_name_that_stops_being_a_number_is_an_error(monkeypatch, value, words):
    shifted(X)
    monkeypatch.setitem(globals(), "OFFSET", value)
    for _ in range(2):
        with pytest.raises(redlang.RedlangError) as caught:
            shifted(X)
        assert words in str(caught.value)
        assert "OFFSET" in str(caught.value)
    monkeypatch.setitem(globals(), "OFFSET", 1)
    np.testing.assert_array_equal(shifted(X), [4, 13])


def test_a_name_that_goes_away_is_an_error_until_it_comes_back(monkeypatch):
    shifted(X)
    monkeypatch.delitem(globals(), "OFFSET")
    with pytest.raises(redlang.UnknownNameError, match="OFFSET"):
        shifted(X)
    monkeypatch.setitem(globals(), "OFFSET", 7)
    np.testing.assert_array_equal(shifted(X), [10, 19])


def test_a_macro_that_becomes_another_is_seen(monkeypatch):
    np.testing.assert_array_equal(energy(X), [5, 50])

    @redlang.function
    def cubed(x):
        return x * x * x

    monkeypatch.setitem(globals(), "squared", cubed)
    np.testing.assert_array_equal(energy(X), [9, 216])
    monkeypatch.setitem(globals(), "squared", 3)
    with pytest.raises(redlang.UnknownNameError, match="squared"):
        energy(X)
    monkeypatch.undo()
    np.testing.assert_array_equal(energy(X), [5, 50])


def make(factor):
    @redlang.kernel
    def multiplied(x: "n") -> "n":
        return squared(x) * factor

    return multiplied


def test_closures_keep_their_own_numbers():
    two, three = make(2), make(3.5)
    np.testing.assert_array_equal(three(X[0]), 3.5 * X[0] ** 2)
    np.testing.assert_array_equal(two(X[0]), 2 * X[0] ** 2)


def test_methods_read_their_object():
    loud, quiet = Layer(10), Layer(0.5)
    np.testing.assert_array_equal(loud.amplified(X[0]), [0, 10, 20])
    np.testing.assert_array_equal(quiet.amplified(X[0]), [0, 0.5, 1])
    loud.gain = 2
    np.testing.assert_array_equal(Layer.amplified(loud, X[0]), [0, 2, 4])
    np.testing.assert_array_equal(loud.doubled(X[0]), [0, 2, 4])
    np.testing.assert_array_equal(Layer.doubled(X[0]), [0, 2, 4])
    np.testing.assert_array_equal(loud.tripled(X[0]), [0, 3, 6])


def test_a_default_that_its_parameter_cannot_have_is_said_at_once():
    for parameter, words in (('w: "n" = 1.0', "an array and cannot"), ("w: int = 1.5", "is 1.5")):
        kernel = redlang.compile(f'def f(x: "n", {parameter}) -> "n": return x * w')
        with pytest.raises(redlang.DTypeError, match=words):
            kernel(X[0])


def test_a_method_is_a_whole_kernel():
    loud, quiet = Layer(10), Layer(0.5)
    quiet.amplified(X[0])
    method = loud.amplified
    assert isinstance(method, redlang.Kernel)
    assert method == loud.amplified != quiet.amplified
    assert list(inspect.signature(method).parameters) == ["x"]
    assert "self.gain: float captured" in method.explain("program")
    for bound in (method, pickle.loads(pickle.dumps(method))):
        np.testing.assert_array_equal(bound.reference(X[0]), [0, 10, 20])
        check(bound, examples=3)
    folds = [loud.total.fold("n"), Layer.total.fold("n", self=loud)]
    for fold in (*folds, pickle.loads(pickle.dumps(folds[0]))):
        assert fold.update(X[0]).update(X[1]).result() == 150
    with pytest.raises(redlang.ArgumentError, match=r"instance\.total\.fold\('n'\)"):
        Layer.total.fold("n")
    inner = redlang.compile('def f(x: "n") -> "n": return loud.amplified(x)', {"loud": loud})
    with pytest.raises(redlang.UnknownNameError, match=r"a method of an object"):
        inner(X[0])


def test_a_text_whose_names_lead_back_to_it_pickles():
    names: dict[str, object] = {}
    text = redlang.compile('def twice(x: "n") -> "n": return x * k', names=names)
    names["k"] = text
    names["x"] = text
    assert pickle.loads(pickle.dumps(text)).text == text.text
    names["k"] = 2
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(text))(X[0]), 2 * X[0])


def test_kernels_pickle_by_name_and_by_text():
    assert pickle.loads(pickle.dumps(energy)) is energy
    for dumps in (pickle.dumps, cloudpickle.dumps):
        copy = pickle.loads(dumps(make(4)))
        np.testing.assert_array_equal(copy(X[0]), 4 * X[0] ** 2)
        assert copy.__name__ == "multiplied"
    text = redlang.compile('def f(x: "n") -> "n": return x * k', names={"k": 3}, fuse="never")
    copy = pickle.loads(pickle.dumps(text))
    np.testing.assert_array_equal(copy(X[0]), 3 * X[0])
    assert copy.options.fuse == "never"


def test_kernels_of_main_travel_to_another_process(tmp_path):
    program = textwrap.dedent(
        """
        import math
        import multiprocessing
        import numpy as np
        import redlang

        SCALE = 3.0

        @redlang.kernel
        def scaled(x: "n") -> "n":
            return x * SCALE + 0 * math.pi

        def work(kernel, queue):
            queue.put(kernel(np.ones(2, np.float32)).tolist())

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(scaled, queue))
            process.start()
            print(queue.get(timeout=60))
            process.join()
        """
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.strip() == "[3.0, 3.0]", done.stderr


def test_says_what_it_is():
    assert repr(shifted) == "<redlang kernel shifted(x: 'm n') -> 'm'>"
    assert repr(squared) == "<redlang function squared(x)>"
    assert shifted.__doc__ == "Sum of rows, shifted."
    assert shifted.__name__ == "shifted"
    assert "def shifted" in shifted.text
    assert "def shifted" in (shifted._repr_html_() or "")


def test_a_macro_is_no_kernel():
    with pytest.raises(redlang.ArgumentError, match="macro"):
        squared(X)
    assert squared.parameters == ("x",)
    assert squared.defaults == {}


def test_a_class_method_reads_the_class():
    class Scaled:
        gain = 3

        @classmethod
        @redlang.kernel
        def total(cls, x: "m n") -> "m":
            return sum[n](x) * cls.gain

    class Doubled(Scaled):
        gain = 2

    np.testing.assert_array_equal(Scaled.total(X), 3 * X.sum(axis=1))
    np.testing.assert_array_equal(Doubled().total(X), 2 * X.sum(axis=1))


@pytest.mark.parametrize("value", [3, "auto", None.__class__, [1]], ids=repr)
def test_only_functions_are_decorated(value):
    if callable(value):
        with pytest.raises(redlang.SourceUnavailableError):
            redlang.kernel(value)(X)
        return
    with pytest.raises(TypeError, match="stands above a function"):
        redlang.kernel(value)
    with pytest.raises(TypeError, match="stands above a function"):
        redlang.function(value)


def test_tools_find_signature_and_text_of_a_kernel():
    assert str(inspect.signature(energy)) == "(x: 'm n') -> 'm'"
    assert inspect.unwrap(energy).__name__ == "energy"


def test_an_explanation_is_readable_at_a_prompt():
    explanation = energy.explain("program")
    assert repr(explanation) == str(explanation)


def test_long_sums_over_several_axes_are_whole():
    kernel = redlang.compile('def f(x: "i j") -> "": return sum[i, j](x)')
    x = np.random.default_rng(0).random((3, 9_000_000), np.float32)
    np.testing.assert_allclose(kernel(x), x.sum(dtype=np.float64), rtol=1e-6)


def test_options_are_checked():
    with pytest.raises(redlang.ArgumentError, match="fuse='sometimes'"):
        redlang.kernel(fuse="sometimes")(lambda x: x)  # type: ignore[call-overload]  # the test
    for name, value in (("contract", "f16"), ("rounding", None), ("tune", 1), ("tune", "yes")):
        with pytest.raises(ValueError, match=f"{name}={value!r}: choose one of"):
            redlang.kernel(**{name: value})  # type: ignore[call-overload]  # the test
        with pytest.raises(ValueError, match=f"{name}={value!r}: choose one of"):
            redlang.compile('def f(x: "n") -> "n": return x', **{name: value})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fusion"):
        redlang.kernel(fusion="never")  # type: ignore[call-overload]  # the test


def test_the_options_in_a_text_win():
    text = '@redlang.kernel(fuse="never", tune=True)\ndef f(x: "n") -> "": return sum[n](x)\n'
    options = redlang.compile(text, fuse="always", rounding="running").options
    assert (options.fuse, options.rounding, options.tune) == ("never", "running", True)


@pytest.mark.parametrize("option", ['fuse="sometimes"', "tune=1", 'fusion="never"', "contract=32"])
def test_options_in_a_text_are_checked(option):
    with pytest.raises(redlang.KernelSyntaxError, match="choose one of") as caught:
        redlang.compile(f'@redlang.kernel({option})\ndef f(x: "n") -> "": return sum[n](x)\n')
    assert "<string>:1:1" in str(caught.value)
    assert option.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ['def f(x: "n") -> "n":\n    return x +\n', "class A:\n    def init():\n        return 0\n"],
)
def test_a_text_that_is_no_kernel_is_refused_at_once(text):
    with pytest.raises(redlang.KernelSyntaxError):
        redlang.compile(text)


@pytest.mark.parametrize(
    "value", [None, b"def f(): return 1", lambda: 1], ids=["none", "bytes", "f"]
)
def test_only_text_is_compiled(value):
    with pytest.raises(TypeError, match="takes the text of a definition"):
        redlang.compile(value)


def test_the_reference_is_unfused_and_in_double():
    @redlang.kernel
    def variance(x: "m n") -> "m":
        return mean[n]((x - mean[n](x)) ** 2)

    result = variance.reference(X)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, X.astype(float).var(axis=1), rtol=1e-15)
    assert variance.reference(X, precision="declared").dtype == f32
    with pytest.raises(redlang.ArgumentError, match="precision='single'"):
        variance.reference(X, precision="single")  # type: ignore[arg-type]  # the test
    values, indices = extremes.reference(X)
    assert (values.tolist(), indices.tolist()) == ([2, 5], [2, 2])


def test_explains_each_stage_and_all():
    kernel = redlang.compile(
        'def var(x: "m n") -> "m":\n    mu = mean[n](x)\n    return mean[n]((x - mu) ** 2)\n'
    )
    whole = kernel.explain()
    for word in ("program var", "fused over n", "identity", "sweep 1 over n", "plan of var"):
        assert word in whole
    assert "def var" in kernel.explain("syntax")
    assert "kernel var_0" in kernel.explain("loops")
    assert "<pre>" in whole._repr_html_()
    assert pickle.loads(pickle.dumps(whole)) == whole
    with pytest.raises(redlang.ArgumentError, match="stage='everything'"):
        kernel.explain("everything")
    assert "def var_0(addresses" in kernel.source("cpu")
    with pytest.raises(redlang.BackendError, match="'metal'"):
        kernel.source("metal")
    ((axis, stages),) = kernel.sweeps[0]
    assert axis == "n"
    assert len(stages) >= 2


def test_an_explanation_speaks_of_the_last_call():
    kernel = redlang.compile('def f(x: "m n") -> "m": return sum[n](x)')
    kernel(np.ones((5, 7)))
    assert "m = 5, n = 7" in kernel.explain("plan")
    assert "f64[m n]" in kernel.explain("program")


def test_an_explanation_speaks_of_the_last_call_of_a_kind_seen_before():
    kernel = redlang.compile('def f(x: "m n") -> "m": return sum[n](x)')
    kernel(np.ones((7, 11), np.float32))
    kernel(np.ones((5, 6), np.float64))
    kernel(np.ones((7, 11), np.float32))
    assert "f32[m n]" in kernel.explain("program")
    assert "for m = 7, n = 11" in kernel.explain("plan")
    kernel(np.ones((2, 3), np.float32))
    assert "for m = 2, n = 3" in kernel.explain("plan")


def test_the_plan_says_what_a_call_keeps_in_memory():
    kernel = redlang.compile("""
def cosines(a: "i d", b: "j d") -> "i":
    an = a * rsqrt(sum[d](a * a))
    bn = b * rsqrt(sum[d](b * b))
    return max[j](sum[d](an * bn)) - sum[j](sum[d](an * bn))
""")
    a = np.ones((600, 8), np.float32)
    kernel(a, np.ones((1000, 8), np.float32))
    (kept,) = (x for x in kernel.explain("plan").splitlines() if x.startswith("keeps"))
    assert kept.endswith(": f32[i j], 2.4 MB, in memory between kernels")
    kernel(a[:5], a[:7])
    assert "keeps" not in kernel.explain("plan")


@pytest.mark.parametrize("make", [np.ones, lambda *shape: torch.ones(*shape)], ids=["np", "torch"])
def test_no_array_outlives_its_call(make):
    kernel = redlang.compile('def f(x: "m n", y: "n") -> "m": return sum[n](x * y)')
    for given in (False, True):
        arrays = [make((4, 8)), make((8,))]
        seen = [weakref.ref(array) for array in arrays]
        result = kernel(*arrays, out=make((4,))) if given else kernel(*arrays)
        seen.append(weakref.ref(result))
        del arrays, result
        gc.collect()
        assert [reference() for reference in seen] == [None, None, None]


def test_mistakes_of_a_kernel_come_with_its_first_use_all_at_once():
    @redlang.kernel
    def wrong(x: "m n") -> "m":
        a = sum[k](x)
        return a + unknown_name

    with pytest.raises(redlang.RedlangError) as caught:
        wrong(X)
    assert "k" in str(caught.value)
    assert "unknown_name" in str(caught.value)
    assert len(caught.value.others) == 1


def test_lengths_share_machine_code_and_each_compilation_is_told():
    kernel = redlang.compile('def f(x: "m n") -> "m": return sum[n](x * 1.25)')
    for n in (*range(1, 40), 100, 257):
        np.testing.assert_allclose(kernel(np.ones((2, n), f32)), 1.25 * n)
    info = kernel.cache_info()
    assert info.compilations + info.loaded <= 3
    assert info.launchers == 1
    assert len(info.events) == info.compilations + info.loaded
    assert "f for m=2, n=1" in info.events[0]
    kernel(np.ones((2, 6), f32)[:, ::2])
    kernel(np.ones((2, 3)))
    assert kernel.cache_info().launchers == 3


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
def test_empty_arrays_are_arrays(shape):
    np.testing.assert_array_equal(energy(np.ones(shape, f32)), np.full(shape[0], shape[1]))
    assert plus(np.ones(shape, f32)).shape == shape


@pytest.mark.parametrize(
    "view",
    [lambda x: x.T, lambda x: x[:, ::2], lambda x: x[::-1, ::-1], lambda x: x[3:, 1:]],
)
def test_strides_are_followed(view):
    x = np.random.default_rng(1).normal(size=(20, 30)).astype(f32)
    np.testing.assert_allclose(energy(view(x)), energy(view(x).copy()), rtol=1e-6)
    np.testing.assert_array_equal(plus(view(x)), view(x) + 1)


def test_import_is_light():
    code = (
        "import sys, time, numpy; before = set(sys.modules); start = time.perf_counter(); "
        "import redlang; print(time.perf_counter() - start); "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    runs = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        seconds, loaded = done.stdout.splitlines()
        runs.append(float(seconds))
        heavy = {"numba", "llvmlite", "sympy", "lark", "scipy", "torch", "ml_dtypes", "IPython"}
        assert not heavy & set(loaded.split())
    # The bar is 60 ms on a machine that does nothing else.
    assert min(runs) < 0.12


def noted(*values, **named):
    return lambda target: target


@noted([1, 2], ("a", "b"), *(3,), key={"k": (1,)}, f=lambda x: {y: y for y in x if y})
@redlang.kernel(fuse=("never", "auto")[0])
@noted(
    # a comment with ( and )
    """text with )
    over lines""",
    b"1",
    1 if X.size else f"{X}",
)
@(lambda target: target)
def total_under_others(x: "m n") -> "m":
    return sum[n](x)


@noted(["a"])
@redlang.kernel
def wrong_under_others(x: "m n") -> "m":
    return sum[k](x)


def test_decorators_of_others_take_what_python_admits():
    np.testing.assert_array_equal(total_under_others(X), X.sum(axis=1))
    assert total_under_others.options.fuse == "never"
    with pytest.raises(redlang.AxisError) as caught:
        wrong_under_others(X)
    line = inspect.getsourcelines(wrong_under_others.__wrapped__)[1] + 3
    assert f":{line}:" in str(caught.value)
    with pytest.raises(redlang.KernelSyntaxError, match="options of a decorator"):
        redlang.compile('@noted(["a"])\ndef f(x: "n") -> "n": return x')


@redlang.function(axes=("a", "b"))
def share(x):
    return x / sum[a, b](x)


def test_axes_of_a_macro_are_names_in_a_text_or_several():
    kernel = redlang.compile(
        'def f(x: "m n") -> "m n": return share[m, n](x)', names={"share": share}
    )
    np.testing.assert_allclose(kernel(X), X / X.sum(), rtol=1e-6)
    assert share.axes == "a b"
    for axes in ("2m", [1], ["m n"]):
        with pytest.raises(TypeError, match=r"axes=.*: give names"):
            redlang.function(axes=axes)  # type: ignore[arg-type]  # the test
    with pytest.raises(TypeError):
        redlang.function(axes=3)  # type: ignore[call-overload]  # the test


def frames(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_an_error_reaches_the_caller_without_redlangs_own_frames(caplog):
    total = redlang.compile('def total(x: "m n") -> "m":\n    return sum[n](x)\n')
    here = "test_an_error_reaches_the_caller_without_redlangs_own_frames"
    wrong = np.ones(3, np.float32)
    for call in (total, total):
        with caplog.at_level("DEBUG", "redlang"), pytest.raises(redlang.ArgumentError) as caught:
            call(wrong)
        assert frames(caught.value) == [here, "__call__"]
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        assert "arguments.py" in caplog.text
    named = 'def f(x: "n") -> "n":\n    return y\n'
    for act, last in (
        (lambda: total.reference(wrong), "outer"),
        (lambda: redlang.compile(named)(wrong), "__call__"),
        (lambda: redlang.compile("def f("), "outer"),
    ):
        with pytest.raises(redlang.RedlangError) as error:
            act()
        assert frames(error.value) == [here, "<lambda>", last]


def test_a_fault_inside_keeps_its_frames(monkeypatch):
    total = redlang.compile('def total(x: "m n") -> "m":\n    return sum[n](x)\n')

    def fail(*arguments):
        raise redlang.InternalError("contradiction") from ValueError("below")

    monkeypatch.setattr("redlang.runtime.calling.make_launcher", fail)
    with pytest.raises(redlang.InternalError) as caught:
        total(np.ones((2, 3), np.float32))
    assert frames(caught.value)[-1] == "fail"
    assert isinstance(caught.value.__cause__, ValueError)


def test_figures_need_the_compiler_and_say_so_once(monkeypatch, caplog):
    monkeypatch.setenv("REDLANG_CACHE_DIR", "")
    monkeypatch.setattr(nvvm, "_libraries", lambda: iter(()))
    nvvm.load.cache_clear()
    nvvm.ir_version.cache_clear()
    kernel = redlang.compile('def total(x: "m n") -> "m":\n    return sum[n](x)\n')
    with pytest.raises(redlang.BackendError, match="libNVVM is neither installed") as caught:
        _ = kernel.stats
    assert "pip install" in str(caught.value)
    assert caplog.records == []
