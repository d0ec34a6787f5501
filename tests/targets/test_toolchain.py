"""Compiling without a GPU: targets, figures, errors."""

import pytest

from redlang.errors import BackendError
from redlang.targets import assembler, nvvm, toolchain
from redlang.targets.assembler import ToolMissingError

if not toolchain.is_installed():
    pytest.skip("the compiler for GPUs is not installed", allow_module_level=True)

COPY = """\
from redlang.targets import tiles as t

load = t.load(t.Access("f32", 4))
put = t.store(t.Access("f32", 4))


def copy(x, y):
    put(y, True, load(x))
"""


@pytest.mark.parametrize("target", ["8.0", "8.6", "8.9", "9.0a", "10.0"])
def test_compiles_for_every_target(target):
    binary = toolchain.build(COPY, "copy", ("u64", "u64"), target, max_threads=128)
    assert f".target sm_{target.replace('.', '')}" in binary.ptx
    assert ".entry copy(" in binary.ptx
    assert binary.assembly.cubin.startswith(b"\x7fELF")
    assert 0 < binary.assembly.registers <= 16
    assert binary.assembly.spill_bytes == 0
    assert binary.assembly.slow == ()


def test_ptx_version_suits_older_drivers():
    ptx = toolchain.to_ptx(COPY, "copy", ("u64", "u64"), "9.0a", max_threads=128)
    assert "\n.version 8.6\n" in ptx


def test_the_same_text_gives_the_same_bytes():
    one, two = (
        toolchain.build(COPY, "copy", ("u64", "u64"), "9.0a", max_threads=128) for _ in range(2)
    )
    assert one.ptx == two.ptx
    assert one.assembly.cubin == two.assembly.cubin


def test_equal_code_over_different_globals_is_compiled_twice():
    text = """\
from redlang.targets import tiles as t

inner = t.function("f32", "f32")(lambda x: x {op} x)
outer = t.function("f32", "f32")(lambda x: inner(x))
load = t.load(t.Access("f32", 1))
put = t.store(t.Access("f32", 1))


def kernel(x, y):
    put(y, True, outer(load(x)))
"""
    for op, instruction in (("+", "add.f32"), ("*", "mul.f32")):
        source = text.format(op=op)
        ptx = toolchain.to_ptx(source, "kernel", ("u64", "u64"), "8.0", max_threads=32)
        assert instruction in ptx


def test_reads_the_figures_of_ptxas():
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Function properties for k
    56 bytes stack frame, 48 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 56 bytes cumulative stack, 2048 bytes smem
"""
    found = assembler.read_report(log, b"cubin")
    assert (found.registers, found.spill_bytes, found.stack_bytes) == (168, 108, 56)
    assert found.shared_bytes == 2048
    assert len(found.slow) == 1


def test_names_what_is_no_target():
    with pytest.raises(BackendError, match="'sm_90' is not a compute capability"):
        toolchain.parse_target("sm_90")


def test_text_that_does_not_compile_is_an_error_with_versions():
    with pytest.raises(
        BackendError, match=r"'k' does not compile for 8\.0: line 2: x: an unknown name"
    ) as caught:
        toolchain.to_ptx("def k(x):\n    x.nonsense\n", "k", ("u64",), "8.0", max_threads=32)
    assert "llvmlite" in caught.value.hint


def test_ptx_that_does_not_assemble_is_an_error():
    text = ".version 8.6\n.target sm_80\n.address_size 64\n.entry k() { nonsense; }\n"
    with pytest.raises(BackendError, match="ptxas refuses kernel for sm_80"):
        assembler.assemble(text, "8.0")


def test_missing_ptxas_is_an_error_with_a_hint(monkeypatch):
    monkeypatch.setattr(assembler, "_candidates", lambda: iter(()))
    with pytest.raises(BackendError, match="ptxas is neither") as caught:
        assembler.find_ptxas.__wrapped__()
    assert "CUDA_HOME" in caught.value.hint


def test_a_failure_names_the_versions_when_nothing_compiles_as_it_should(monkeypatch):
    monkeypatch.setattr(toolchain, "_SELF_TEST", "def self_test(x, y):\n    pass\n")
    toolchain._try_out.cache_clear()
    with pytest.raises(ToolMissingError, match="to something else") as caught:
        toolchain.to_ptx("def k(x):\n    x.nonsense\n", "k", ("u64",), "8.0", max_threads=32)
    assert "nvidia-nvvm 13." in caught.value.hint
    toolchain._try_out.cache_clear()


def test_what_libnvvm_refuses_is_an_error_with_its_words():
    with pytest.raises(BackendError, match=r"libNVVM: .*result type 'void'"):
        nvvm.compile_text("define void @k() { ret i32 0 }", ["-arch=compute_90"])
