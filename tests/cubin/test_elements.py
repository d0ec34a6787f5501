"""Generated CUDA kernels compiled without a GPU: target, registers, spills, loads as predicted."""

import re
import struct

import pytest

from redlang.codegen.cuda.kernel_text import ArrayClass, Classes
from redlang.codegen.cuda.merging import emit_segments
from redlang.codegen.cuda.resident import emit
from redlang.schedule.threads import Spread
from redlang.targets import toolchain
from redlang.targets.machine_code import LOAD, code_sections
from tests.cubin.cases import (
    CROSS_ENTROPY,
    LAYER_NORM,
    LOGSUMEXP,
    SOFTMAX,
    TO_F8,
    TOP,
    VARIANCE,
    on_chip,
    streamed,
    threads,
)
from tests.cubin.emitting import lowered, program_of

if not toolchain.is_installed():
    pytest.skip("the compiler for GPUs is not installed", allow_module_level=True)

FADD = 0x221
WIDE = "ld.global.nc.L1::no_allocate.v4.b32"


def classes(arrays, extents, *, multiples=None, alignment=16, native_f8=True):
    known = {name: ArrayClass({axis: 1}, alignment) for name, axis in arrays.items()}
    return Classes(known, multiples or extents, extents, native_f8)


def compiled(text, dtypes, nest_plan, thread_plan, known, *, target="9.0a", mode="never", cut=None):
    loops = lowered(program_of(text, dtypes), [nest_plan], mode)
    kernel = loops.kernels[0]
    if cut is None:
        made = emit(loops, kernel, thread_plan, known)
    else:
        made = emit_segments(loops, kernel, loops.kernels[1], thread_plan, known, across_blocks=cut)
    binary = toolchain.build(
        made.source,
        made.entry,
        made.kinds,
        target,
        max_threads=made.threads,
        min_blocks=made.min_blocks,
        cluster=made.cluster,
    )
    assert f".target sm_{target.replace('.', '')}" in binary.ptx
    assert binary.assembly.spill_bytes == 0
    assert binary.assembly.stack_bytes == 0
    assert binary.assembly.slow == ()
    assert ".f64" not in binary.ptx
    return binary


def loads(binary):
    return re.findall(r"(ld\.[\w.:]*global[\w.:]*)", binary.ptx)


ROW_4096 = {"x": "n", "result.0": "n"}


@pytest.mark.parametrize("target", ["8.0", "9.0a"])
def test_softmax_reads_each_element_once_in_16_byte_loads(target):
    binary = compiled(
        SOFTMAX,
        {"x": "f16"},
        on_chip(4096),
        threads(Spread("n", 4, 128, 8)),
        classes(ROW_4096, {"n": 4096}),
        target=target,
    )
    # 4096 elements, 128 threads, 8 elements a load: 4 loads a thread, none of them twice
    assert loads(binary) == [WIDE] * 4
    assert len(re.findall(r"st\.global\.cs\.v4\.b32", binary.ptx)) == 4
    assert binary.assembly.registers <= 96


def test_a_tail_of_whole_groups_costs_no_narrow_loads():
    binary = compiled(
        SOFTMAX,
        {"x": "f16"},
        on_chip(4096),
        threads(Spread("n", 4, 128, 8)),
        classes(ROW_4096, {"n": 4096}, multiples={"n": 8}),
    )
    assert loads(binary) == [WIDE] * 4
    assert binary.assembly.registers <= 96


def test_a_row_over_a_cluster_is_read_once_and_folded_through_shared_memory():
    binary = compiled(
        SOFTMAX,
        {"x": "f16"},
        on_chip(65536),
        threads(Spread("n", 2, 4096, 8), blocks=8),
        classes(ROW_4096, {"n": 65536}),
    )
    assert ".reqnctapercluster 8" in binary.ptx
    assert loads(binary) == [WIDE] * 2
    # A maximum and a sum, written to each of the eight blocks.
    assert binary.ptx.count("st.shared::cluster") == 16
    assert binary.assembly.registers <= 64


def test_loads_that_run_ahead_are_copies_to_shared_memory():
    binary = compiled(
        VARIANCE,
        {"x": "f32"},
        streamed(4096),
        threads(Spread("n", 4, 256, 4), strips=("n",), ahead=2),
        classes(ROW_4096, {}, multiples={"n": 4}),
        mode="auto",
        cut=False,
    )
    # Two tiles before the loop and one in it, of four pieces each.
    assert binary.ptx.count("cp.async.cg.shared.global") == 3 * 4
    assert not [text for text in loads(binary) if "v4" in text]
    assert len(re.findall(r"ld\.shared\.v4\.b32", binary.ptx)) >= 4


def test_rows_in_shared_memory_leave_registers_to_more_blocks():
    binary = compiled(
        LAYER_NORM,
        {"x": "bf16", "g": "bf16", "b": "bf16"},
        on_chip(16384),
        threads(Spread("n", 8, 256, 8), min_blocks=4, shared=True),
        classes({**ROW_4096, "g": "n", "b": "n"}, {"n": 16384}),
    )
    # x is copied once; gains and biases come from memory, a part at a time.
    assert binary.ptx.count("cp.async.cg.shared.global") == 8
    assert len([text for text in loads(binary) if "v4" in text]) == 2 * 2
    assert binary.assembly.registers <= 64


def test_ragged_aligned_rows_move_their_last_elements_one_by_one():
    binary = compiled(
        SOFTMAX,
        {"x": "f16"},
        on_chip(2048),
        threads(Spread("n", 2, 128, 8)),
        classes(ROW_4096, {"n": 2048}, multiples={"n": 1}),
    )
    wide = [text for text in loads(binary) if "v4" in text]
    assert len(wide) == 2
    assert len(loads(binary)) == 2 + 2 * 8


@pytest.mark.parametrize("dtype", ["f16", "f32", "i32"])
def test_guarded_loads_of_a_ragged_row_are_all_under_way_at_once(dtype):
    text = """
def shares(x: "m n") -> "f32[m n]":
    r = maximum(f32(x), 0) ** 2
    return r / sum[n](r)
"""
    binary = compiled(
        text,
        {"x": dtype},
        on_chip(1536),
        threads(Spread("n", 24, 64, 1)),
        classes(ROW_4096, {"n": 1536}, multiples={"n": 1}, alignment=4),
    )
    (code,) = code_sections(binary.assembly.cubin)
    operations = [word & 0xFFF for (word,) in struct.iter_unpack("<Q8x", code)]
    places = [place for place, operation in enumerate(operations) if operation == LOAD]
    assert len(places) == 24
    # A test and a filled register for each: no use stands between two loads.
    assert places[-1] - places[0] < 3 * 24
    assert FADD not in operations[places[0] : places[-1]]
    assert binary.assembly.registers <= 56


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16"])
@pytest.mark.parametrize(
    ("value", "width"), [("x", 32), ("-x", 64), ("abs(x)", 64), ("3 - x", 64)], ids=str
)
def test_extremes_of_what_may_be_negated_are_comparisons_of_64_bits(value, width, dtype):
    binary = compiled(
        f'def top(x: "m n") -> "m":\n    return max[n]({value})\n',
        {"x": dtype},
        on_chip(1536),
        threads(Spread("n", 24, 64, 1)),
        classes({"x": "n"}, {"n": 1536}, alignment=1),
    )
    # ptxas loses the sign of an operand where it makes one VIMNMX3 of two extremes.
    found = set(re.findall(r"\b(?:max|min)\.s(32|64)\b", binary.ptx))
    assert found <= {str(width)}


def test_misaligned_arrays_are_read_as_wide_as_they_allow():
    binary = compiled(
        SOFTMAX,
        {"x": "f16"},
        on_chip(1024),
        threads(Spread("n", 1, 128, 8)),
        classes(ROW_4096, {"n": 1024}, alignment=4),
    )
    assert loads(binary) == ["ld.global.nc.L1::no_allocate.b32"] * 4


@pytest.mark.parametrize(("text", "count"), [(VARIANCE, 4), (LOGSUMEXP, 4)])
@pytest.mark.parametrize("cut", [False, True])
def test_a_fused_sweep_reads_the_row_once(text, count, cut):
    binary = compiled(
        text,
        {"x": "f32"},
        streamed(4096),
        threads(Spread("n", 4, 256, 4), strips=("n",)),
        classes({"x": "n", "result.0": "m"}, {"n": 1 << 24}),
        mode="auto",
        cut=cut,
    )
    assert loads(binary).count(WIDE) == count
    assert binary.assembly.registers <= 96
    # Partial states of other blocks never come through the read-only path.
    others = [text for text in loads(binary) if text != WIDE]
    assert all("relaxed" in text for text in others)
    assert bool(others) == cut
    # They come with a mark beside each word, and nothing waits for what is written.
    assert ("st.relaxed.gpu.global.b64" in binary.ptx) == cut
    assert not re.search(r"\b(atom|fence|membar)\b", binary.ptx)


def test_layer_norm_keeps_its_weights_in_l1():
    binary = compiled(
        LAYER_NORM,
        dict.fromkeys("xgb", "bf16"),
        on_chip(4096),
        threads(Spread("n", 4, 128, 8)),
        classes({"x": "n", "g": "n", "b": "n", "result.0": "n"}, {"n": 4096}),
    )
    assert loads(binary).count(WIDE) == 4
    assert loads(binary).count("ld.global.nc.v4.b32") == 8


def test_top_k_of_half_precision_rows_compares_32_bit_keys():
    binary = compiled(
        TOP,
        {"x": "f16"},
        on_chip(4096, tiles=(("j", 4),)),
        threads(Spread("n", 4, 128, 8)),
        classes({"x": "n", "result.0": "j", "result.1": "j"}, {"n": 4096, "j": 4}),
    )
    assert loads(binary) == [WIDE] * 4
    assert "max.u32" in binary.ptx
    assert binary.assembly.registers <= 128


def test_labels_are_gathered_with_one_load():
    binary = compiled(
        CROSS_ENTROPY,
        {"x": "bf16"},
        streamed(4096),
        threads(Spread("n", 2, 256, 8), strips=("n",)),
        classes({"x": "n", "y": "m", "result.0": "m"}, {"n": 4096}),
        mode="auto",
        cut=False,
    )
    assert loads(binary).count(WIDE) == 2
    assert len(loads(binary)) == 4


@pytest.mark.parametrize(("target", "native"), [("8.0", False), ("9.0a", True)])
def test_f8_stores_use_the_conversion_where_there_is_one(target, native):
    binary = compiled(
        TO_F8,
        {"x": "f32"},
        on_chip(1024),
        threads(Spread("n", 1, 256, 4)),
        classes({"x": "n", "result.0": "n", "result.1": "m"}, {"n": 1024}, native_f8=native),
        target=target,
    )
    assert ("cvt.rn.satfinite.e4m3x2.f32" in binary.ptx) == native
    assert len(re.findall(r"st\.global\.cs\.b32", binary.ptx)) >= 1


def test_the_text_is_readable_python_with_every_name_declared():
    loops = lowered(program_of(SOFTMAX, {"x": "f16"}), [on_chip(4096)], "never")
    made = emit(
        loops,
        loops.kernels[0],
        threads(Spread("n", 4, 128, 8)),
        classes(ROW_4096, {"n": 4096}),
    )
    compile(made.source, "softmax", "exec")
    assert f"def {made.entry}(" in made.source
    assert max(map(len, made.source.splitlines())) < 200
