"""Arrays of each library: what they hold, where they lie, and how results go back."""

import sys

import ml_dtypes
import numpy as np
import pytest

import redlang
from redlang.errors import ArgumentError
from redlang.ir.types import DTYPES
from redlang.runtime import foreign, interop
from redlang.runtime.dlpack import read_capsule, row_major
from redlang.runtime.memory import layout_class, numpy_dtype
from tests.with_torch import needs_torch, torch


@pytest.mark.parametrize("name", list(DTYPES))
def test_numpy_holds_every_element_type(name):
    array = interop.NUMPY.empty((2, 3), DTYPES[name], "cpu")
    memory = interop.NUMPY.memory(array)
    assert memory.dtype == DTYPES[name]
    assert (memory.shape, memory.strides, memory.device) == ((2, 3), (3, 1), "cpu")
    assert memory.problem == ("", "")


@needs_torch
@pytest.mark.parametrize("name", list(DTYPES))
def test_torch_holds_every_element_type(name):
    tensor = interop.TORCH.empty((2, 3), DTYPES[name], "cpu").zero_()
    memory = interop.TORCH.memory(tensor)
    assert memory.dtype == DTYPES[name]
    assert memory.device == "cpu"
    view = interop.TORCH.to_numpy(tensor)
    assert view.dtype == numpy_dtype(name)
    assert interop.NUMPY.memory(view).address == memory.address


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x[1:, :],
        lambda x: np.broadcast_to(x[0], (3, 8)),
        lambda x: x[0, 0],
        lambda x: x[:0],
    ],
)
def test_strides_count_elements_whatever_the_view(view):
    array = np.asarray(view(np.arange(48, dtype=np.int16).reshape(6, 8)))
    memory = interop.NUMPY.memory(array)
    assert memory.strides == tuple(s // 2 for s in array.strides)
    assert memory.shape == array.shape


def test_foreign_byte_order_and_unknown_types_are_named():
    assert interop.NUMPY.memory(np.zeros(2, ">f4")).dtype == "float32 in foreign byte order"
    assert interop.NUMPY.memory(np.zeros(2, np.complex64)).dtype == "complex64"
    assert interop.NUMPY.memory(np.zeros(2, ml_dtypes.float8_e4m3)).dtype == "float8_e4m3"
    assert interop.TORCH.memory(torch.zeros(2, dtype=torch.complex64)).dtype == "complex64"


def test_a_field_of_packed_records_has_a_remedy():
    records = np.zeros(3, [("flag", "i1"), ("value", "f4")])
    problem, hint = interop.NUMPY.memory(records["value"]).problem
    assert "5" in problem
    assert "ascontiguousarray" in hint
    assert interop.NUMPY.mark(records["value"]) != interop.NUMPY.mark(np.zeros(3, np.float32))


def test_a_masked_array_never_passes_for_a_plain_one():
    masked = np.ma.masked_array(np.zeros(3), mask=np.array([False, True, False]))
    assert interop.NUMPY.memory(masked).problem[0] == "is a masked array"
    assert isinstance(interop.MARKS[type(masked)](masked), interop.Foreign)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.zeros(2, 2).to_sparse(), "sparse"),
        (lambda: torch.zeros(2, 2).to_sparse_csr(), "sparse"),
        (lambda: torch.zeros(2, requires_grad=True), "gradient"),
        (lambda: torch.zeros(2, dtype=torch.complex64).conj().imag, "negated"),
    ],
    ids=["sparse", "compressed", "gradient", "negated"],
)
@pytest.mark.filterwarnings("ignore")  # torch's own, of its prototypes
def test_tensors_that_cannot_be_read_say_why(make, words):
    assert words in interop.TORCH.memory(make()).problem[0]
    interop.TORCH.mark(make())


def test_a_number_that_wants_a_gradient_is_refused():
    kernel = redlang.compile('def scaled(x: "n", s: float) -> "n": return x * s')
    s = torch.tensor(2.0, requires_grad=True)
    x = torch.ones(3)
    assert kernel(x, torch.tensor(2.0)).tolist() == [2, 2, 2]
    with pytest.raises(ArgumentError, match=r"s requires a gradient(.|\n)*pass s\.detach\(\)"):
        kernel(x, s)
    assert kernel(x, s.detach()).tolist() == [2, 2, 2]
    with torch.no_grad():
        assert kernel(x, s).tolist() == [2, 2, 2]


def test_a_gradient_is_no_matter_under_no_grad():
    tensor = torch.zeros(2, requires_grad=True)
    tracked = interop.TORCH.mark(tensor)
    with torch.no_grad():
        assert interop.TORCH.mark(tensor) != tracked
        assert interop.TORCH.memory(tensor).problem == ("", "")


def test_marks_tell_apart_what_needs_another_kernel():
    x = np.zeros((4, 6), np.float32)
    distinct = [x, x.T, x[:, ::2], x.astype(np.float64), torch.zeros(4, 6)]
    marks = [interop.MARKS[type(a)](a) for a in distinct]
    assert len(set(marks)) == len(marks)
    assert interop.MARKS[type(x)](np.zeros((9, 1), np.float32)) == marks[0]


def test_layouts_name_the_dimension_of_adjacent_elements():
    assert layout_class((3, 4), (4, 1), 1) == 1
    assert layout_class((3, 4), (1, 3), 1) == 0
    assert layout_class((3, 4), (0, 0), 1) == -1
    assert layout_class((3, 1), (1, 99), 1) == 1
    assert layout_class((), (), 1) == -1


class Producer:
    """An array of a library that nobody knows: DLPack is all it has."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("name", list(DTYPES))
def test_adopts_any_dlpack_array_without_a_copy(name):
    tensor = torch.arange(12).to(getattr(torch, interop.TORCH_NAMES[name])).reshape(3, 4)[:, ::2]
    adopted = foreign.adopt(Producer(tensor))
    assert adopted is not None
    assert adopted.array.dtype == numpy_dtype(name)
    np.testing.assert_array_equal(
        adopted.array.astype(np.float64), interop.TORCH.to_numpy(tensor).astype(np.float64)
    )
    assert interop.NUMPY.memory(adopted.array).address == tensor.data_ptr()
    assert interop.NUMPY.memory(adopted.array).strides == (4, 2)


def test_an_adopted_array_keeps_its_memory_alive():
    adopted = foreign.adopt(Producer(torch.full((1000,), 7.0)))
    assert adopted is not None
    junk = [torch.zeros(1000) for _ in range(50)]
    assert (adopted.array == 7).all()
    assert len(junk) == 50


def test_results_go_back_by_the_producers_own_library():
    class Known(Producer):
        def __array_namespace__(self):
            return torch

    adopted = foreign.adopt(Known(torch.zeros(2)))
    assert adopted is not None
    assert isinstance(adopted.restore(np.ones(2)), torch.Tensor)
    plain = foreign.adopt(Producer(torch.zeros(2)))
    assert plain is not None
    assert isinstance(plain.restore(np.ones(2)), np.ndarray)


def test_what_is_no_array_is_not_adopted():
    assert foreign.adopt([1, 2, 3]) is None
    assert not interop.is_array([1, 2])
    assert not interop.is_array(2.0)
    assert interop.is_array(np.zeros(()))
    assert interop.is_array(Producer(torch.zeros(1)))


def test_capsules_without_strides_are_row_major():
    assert row_major((2, 3, 4)) == (12, 4, 1)
    assert row_major((2, 0, 4)) == (4, 4, 1)
    assert row_major(()) == ()
    with pytest.raises(ValueError, match="PyCapsule"):
        read_capsule(object())


def test_libraries_are_not_loaded_for_their_own_sake():
    assert "cupy" not in sys.modules
    assert interop.library_of(list) is None


TOTAL = redlang.compile('def total(x: "m n") -> "m": return sum[n](x)')


@pytest.mark.parametrize("current", [1, 0, None])
def test_new_tensors_are_made_where_the_arrays_are(current, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    made = []

    def strided(shape, steps, dtype):
        made.append((shape, steps))
        return torch.empty_strided(shape, steps, dtype=dtype)

    guards = torch._C._dynamo.guards
    if current is None:
        monkeypatch.delattr(guards, "_empty_strided_cuda")
    else:
        monkeypatch.setattr(guards, "_empty_strided_cuda", strided)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current, raising=False)
    monkeypatch.setattr(torch, "empty", lambda **options: options["device"])
    make = interop._maker_torch("cuda:1")
    found = make((3, 4), (4, 1), torch.float16)
    if current == 1:
        assert made == [((3, 4), (4, 1))]
        assert found.dtype is torch.float16
    else:
        assert (made, found) == ([], torch.device("cuda:1"))


def test_new_memory_is_nan_where_torch_was_asked_for_that():
    torch.use_deterministic_algorithms(True)
    try:
        assert interop._maker_torch("cpu")((3,), (1,), torch.float32).isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def freed():
    x = torch.ones(3, 2)
    x.untyped_storage().resize_(0)
    return x


def fake():
    with torch._subclasses.fake_tensor.FakeTensorMode():
        return torch.ones(3, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: TOTAL(fake()),
        lambda: torch.vmap(TOTAL)(torch.ones(5, 3, 2)),
        lambda: torch.func.functionalize(TOTAL)(torch.ones(3, 2)),
        lambda: torch.func.grad(lambda x: TOTAL(x).sum())(torch.ones(3, 2)),
        lambda: TOTAL(torch.masked.masked_tensor(torch.ones(3, 2), torch.ones(3, 2) > 0)),
        lambda: TOTAL(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
        lambda: TOTAL(freed()),
    ],
    ids=["fake", "vmap", "functional", "grad", "masked", "nested", "freed"],
)
@pytest.mark.filterwarnings("ignore")  # torch's own, of its prototypes
def test_tensors_without_memory_are_refused_by_warm_kernels_too(call):
    TOTAL(torch.ones(3, 2))
    for _ in range(2):
        with pytest.raises(redlang.ArgumentError, match="x has no elements in memory") as caught:
            call()
    assert "plain tensor" in str(caught.value)


@pytest.mark.parametrize(
    "make", [np.empty, lambda *shape: torch.empty(*shape)], ids=["numpy", "torch"]
)
def test_results_are_stored_where_dlpack_allows_writing(make):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class Old(Foreign):
        def __dlpack__(self, **keywords):
            if "max_version" in keywords:
                raise TypeError("unknown")
            return self.array.__dlpack__()

    out, x = Foreign(make(3)), np.ones((3, 4), np.float64 if make is np.empty else np.float32)
    assert TOTAL(x, out=out) is out
    np.testing.assert_array_equal(np.asarray(out.array), [4, 4, 4])
    with pytest.raises(redlang.ArgumentError, match="out is read-only"):
        TOTAL(x, out=Old(make(3)))
    locked = np.ones(3)
    locked.flags.writeable = False
    with pytest.raises(redlang.ArgumentError, match="out is read-only"):
        TOTAL(np.ones((3, 4)), out=Foreign(locked))
    np.testing.assert_array_equal(TOTAL(Foreign(np.broadcast_to(2.0, (3, 4)))), [8, 8, 8])


def test_what_cannot_hold_results_is_told_what_to_do():
    x = np.ones((3, 4))
    capsule = np.ones(3).__dlpack__()
    for out, words in (
        (np.float64(0), "hint: results are stored in arrays: out=array"),
        ([0.0], r"out\[0\] is 0\.0(.|\n)*hint: results are stored in arrays"),
        (capsule, "hint: pass the array that the capsule is of"),
        ((np.empty(3), np.empty(3)), "of 2 arrays, and the kernel returns one array"),
        (np.empty(4), r"hint: pass an array of shape \(3,\)"),
    ):
        with pytest.raises(redlang.ArgumentError, match=words):
            TOTAL(x, out=out)


def test_an_array_between_two_elements_says_so():
    x = np.frombuffer(bytearray(4 * 24 + 1), np.float32, offset=1, count=24).reshape(4, 6)
    with pytest.raises(
        ArgumentError, match=r"begins at an address that its 4-byte elements do not"
    ):
        redlang.std.softmax(x)
    assert redlang.std.softmax(x.copy()).shape == (4, 6)


def test_a_numpy_scalar_is_an_array_without_dimensions():
    kernel = redlang.compile('def scaled(x: "n", s: "") -> "n":\n    return x * s\n')
    found = kernel(np.ones(3, np.float32), np.float32(3))
    np.testing.assert_array_equal(found, [3, 3, 3])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(kernel.reference(np.ones(3), np.float32(3)), [3, 3, 3])
