"""The launcher without a GPU: a driver made of Python functions records what it is asked."""

import ctypes
import struct
import threading

import pytest

from redlang.errors import BackendError
from redlang.runtime.driver import Driver, driver, require_driver
from redlang.targets.stub import (
    PARAMETER_KINDS,
    DriverCalls,
    bind_capturing,
    bind_launch,
    build,
    link,
)
from redlang.targets.toolchain import PARAMETER_TYPES

Launch = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_uint64,
    *[ctypes.c_uint] * 7,
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
Extended = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.c_uint64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
Out = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))
Query = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int))
In = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)


class FakeDriver:
    """Records launches; `current` is the context that it says is current."""

    def __init__(self, widths, status=0):
        self.widths = widths
        self.status = status
        self.current = 5
        self.launches = []
        self.contexts = []
        self.capturing = {}
        self.functions = (
            *(Launch(self.launch), Out(self.get), In(self.push), Out(self.pop)),
            *(Query(self.is_capturing), Extended(self.launch_extended)),
        )

    def launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        raw = [ctypes.string_at(parameters[i], width) for i, width in enumerate(self.widths)]
        self.launches.append(((function, gx, gy, gz, bx, by, bz, shared, stream), raw))
        return self.status

    def launch_extended(self, configuration, function, parameters, extra):
        gx, gy, gz, bx, by, bz, shared = struct.unpack("<7I", ctypes.string_at(configuration, 28))
        stream, attributes, count = configuration[4], configuration[5], configuration[6]
        assert count == 1
        # Programmatic stream serialisation, allowed.
        assert struct.unpack("<Ixxxxi", ctypes.string_at(attributes, 12)) == (6, 1)
        own = (stream, parameters, extra)
        return self.launch(function, gx, gy, gz, bx, by, bz, shared, *own) or -1

    def get(self, place):
        place[0] = self.current
        return 0

    def push(self, context):
        self.contexts.append(("push", context))
        return 0

    def pop(self, place):
        self.contexts.append(("pop",))
        return 0

    def is_capturing(self, stream, place):
        answer = self.capturing.get(stream, 0)
        if answer < 0:
            return -answer
        place[0] = answer
        return 0

    @property
    def stub(self):
        addresses = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self.functions)
        return link(build(), DriverCalls(*addresses))


def bound(fake, kinds, *, early=None):
    shape = {"threads": 128, "shared_bytes": 4096, "kinds": kinds, "early": early}
    return bind_launch(fake.stub, function=11, context=5, **shape)


@pytest.mark.parametrize(("early", "status"), [(None, 0), (0, -1), (1000, -1), (1001, 0)])
def test_packs_parameters_by_their_types(early, status):
    fake = FakeDriver((8, 8, 4, 8, 3))
    launch = bound(fake, ("u64", "i64", "f32", "f64", "bytes"), early=early)
    # The fake driver tells by its status which of its functions was called.
    assert launch(77, 1000, 2**63 + 1, -3, 1.5, 2.5, b"abc") == status
    ((shape, raw),) = fake.launches
    assert shape == (11, 1000, 1, 1, 128, 1, 1, 4096, 77)
    assert raw == [
        (2**63 + 1).to_bytes(8, "little"),
        (-3).to_bytes(8, "little", signed=True),
        b"\0\0\xc0\x3f",
        b"\0\0\0\0\0\0\x04\x40",
        b"abc",
    ]


def test_every_parameter_type_of_the_compiler_can_be_packed():
    assert set(PARAMETER_TYPES) <= set(PARAMETER_KINDS)


def test_returns_the_status():
    assert bound(FakeDriver((), status=700), ())(0, 1) == 700


def test_a_foreign_context_is_replaced_for_the_launch_only():
    fake = FakeDriver((8,))
    launch = bound(fake, ("u64",))
    launch(0, 1, 1)
    assert fake.contexts == []
    fake.current = 6
    launch(0, 1, 1)
    assert fake.contexts == [("push", 5), ("pop",)]


def test_a_stream_tells_whether_it_is_captured_or_why_it_cannot():
    fake = FakeDriver(())
    fake.capturing = {2**63 + 7: 1, 3: 2, 4: -906}
    status = bind_capturing(fake.stub)
    assert [status(stream) for stream in (0, 2**63 + 7, 3, 4)] == [0, 1, 2, -906]
    for wrong in (("x",), (), (1, 2)):
        with pytest.raises(TypeError):
            status(*wrong)


@pytest.mark.parametrize("arguments", [(), (0,), (0, 1), (0, 1, 2, 3)])
def test_refuses_a_wrong_number_of_parameters(arguments):
    fake = FakeDriver((8,))
    with pytest.raises(TypeError, match="wrong number of kernel parameters"):
        bound(fake, ("u64",))(*arguments)
    assert fake.launches == []


def test_refuses_what_is_no_number_and_launches_nothing():
    fake = FakeDriver((8, 4))
    with pytest.raises(TypeError):
        bound(fake, ("u64", "f32"))(0, 1, "x", 1.0)
    with pytest.raises(TypeError):
        bound(fake, ("u64", "f32"))(0, 1, 1, "x")
    assert fake.launches == []


def test_a_tensor_map_is_passed_by_value_and_has_128_bytes():
    fake = FakeDriver((128,))
    launch = bound(fake, ("map",))
    launch(0, 1, bytes(range(128)))
    assert fake.launches[0][1] == [bytes(range(128))]
    for wrong in (b"", bytes(127), bytes(129), 5):
        with pytest.raises(TypeError):
            launch(0, 1, wrong)
    assert len(fake.launches) == 1


def test_threads_do_not_share_parameters():
    fake = FakeDriver((8, 8))
    launch = bound(fake, ("u64", "u64"))

    def work(number):
        for _ in range(200):
            launch(0, 1, number, number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.launches) == 800
    assert all(first == second for _, (first, second) in fake.launches)


class FakeLibrary:
    """libcuda of which only attributes can be set."""

    def __init__(self):
        self.set = []

    def cuFuncSetAttribute(self, function, attribute, value):  # noqa: N802
        self.set.append((attribute, value))
        return 0

    def cuGetErrorName(self, status, place):  # noqa: N802
        place._obj.value = b"CUDA_ERROR_NO_BINARY_FOR_GPU"
        return 0

    def cuModuleLoadData(self, module, cubin):  # noqa: N802
        return 209


def test_shared_memory_limit_only_rises():
    library = FakeLibrary()
    fake = Driver(library, 0)  # type: ignore[arg-type]
    for wanted in (1000, 49152, 60000, 50000, 70000, 70000):
        fake._raise_shared_limit(3, wanted)
    assert library.set == [(8, 60000), (8, 70000)]


def test_driver_errors_have_names_and_hints():
    fake = Driver(FakeLibrary(), 0)  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="NO_BINARY_FOR_GPU") as caught:
        fake._module(1, b"cubin")
    assert "another compute capability" in caught.value.hint


def test_a_context_does_not_survive_a_fork():
    fake = Driver(FakeLibrary(), process=1)  # type: ignore[arg-type]
    with pytest.raises(BackendError, match="before this process was forked"):
        fake.context(0)


@pytest.mark.skipif(driver() is not None, reason="this machine has a GPU")
def test_says_what_is_missing_without_a_gpu():
    with pytest.raises(BackendError, match="no CUDA driver or no GPU"):
        require_driver()
