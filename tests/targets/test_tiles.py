"""Intrinsics of CUDA kernels: the instructions they become, and the numbers they stand for."""

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest
from llvmlite import binding, ir

from redlang.codegen.cuda.module import WORDS
from redlang.targets import toolchain, vocabulary
from redlang.targets.ptx import convert
from redlang.targets.ptx.access import Access, Along, Guard, pieces
from redlang.targets.ptx.across import warps_bytes, warps_rows
from redlang.targets.ptx.shared import BYTES, _groups

if not toolchain.is_installed():
    pytest.skip("the compiler for GPUs is not installed", allow_module_level=True)

KERNEL = """\
from redlang.targets import tiles as t
from redlang.targets.vocabulary import *

{declarations}


def kernel({parameters}):
    {body}
"""


def ptx_of(declarations, body, parameters=("x", "y"), target="9.0a", kinds=None):
    source = KERNEL.format(declarations=declarations, body=body, parameters=", ".join(parameters))
    kinds = kinds or ["i64"] * len(parameters)
    return toolchain.to_ptx(source, "kernel", kinds, target, max_threads=128)


def test_a_guard_that_all_pieces_pass_alike_is_tested_once():
    along = 't.Along(8, 2, 64, "n", 1)'
    access = f't.Access("f16", 2, ({along},), axis="c", guards=(t.Guard("n"), t.Guard("c")))'
    ptx = ptx_of(f"t_in = t.load({access})", "t_in(x, i32(y), i32(y >> 32))")
    assert ptx.count("@p ld.global") == ptx.count("setp.ge.s32 p") == 8
    assert "setp.ge.and" not in ptx


@pytest.mark.parametrize(
    ("dtype", "width", "instruction"),
    [
        ("f16", 8, "v4.b32"),
        ("bf16", 8, "v4.b32"),
        ("f8e4m3", 16, "v4.b32"),
        ("f8e5m2", 4, "b32"),
        ("f32", 4, "v4.b32"),
        ("f32", 2, "v2.b32"),
        ("f64", 2, "v2.b64"),
        ("i64", 2, "v2.b64"),
        ("u8", 16, "v4.b32"),
        ("bool", 1, "u8"),
        ("i16", 1, "b16"),
    ],
)
def test_a_tile_is_moved_in_one_access_each_way(dtype, width, instruction):
    ptx = ptx_of(
        f't_in = t.load(t.Access("{dtype}", {width}))\n'
        f't_out = t.store(t.Access("{dtype}", {width}))',
        "t_out(y, True, t_in(x))",
    )
    assert ptx.count(f"ld.global.nc.L1::no_allocate.{instruction} ") == 1
    assert ptx.count("ld.global") == 1
    assert ptx.count("st.global") == 1
    assert ".f64" not in ptx


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        ("stream", "ld.global.nc.L1::no_allocate.b32"),
        ("keep", "ld.global.nc.b32"),
        ("coherent", "ld.relaxed.gpu.global.b32"),
        ("plain", "ld.global.b32"),
    ],
)
def test_hints_are_in_the_instruction(hint, text):
    ptx = ptx_of(
        f'a = t.load(t.Access("f32", 1), hint="{hint}")\nb = t.store(t.Access("f32", 1))',
        "b(y, True, a(x))",
    )
    assert text in ptx


@pytest.mark.parametrize(
    ("expression", "instruction"),
    [
        ("maximum(a, b)", "max.NaN.f32"),
        ("minimum(a, b)", "min.NaN.f32"),
        ("rsqrt(a)", "rsqrt.approx.f32"),
        ("exp2(a)", "ex2.approx.ftz.f32"),
        ("exp(a)", "fma.rn.sat.f32"),
        ("fma(a, b, a)", "fma.rn.f32"),
        ("cast_f16(a)", "cvt.rn.f16.f32"),
        ("select(is_nan(a), a, b)", "selp"),
    ],
)
def test_words_become_the_instructions_meant(expression, instruction):
    ptx = ptx_of(
        'load = t.load(t.Access("f32", 1))\nput = t.store(t.Access("f32", 1))\n\n\n'
        f't_f = t.function("f32", "f32", "f32")(lambda a, b: {expression})',
        "put(y, True, t_f(load(x), load(y)))",
    )
    assert instruction in ptx
    assert ".f64" not in ptx


def test_64_bit_values_are_shuffled_as_two_halves():
    ptx = ptx_of(
        'a = t.load(t.Access("f64", 1))\nb = t.store(t.Access("f64", 1))\nswap = t.butterfly(8)',
        "b(y, True, swap(a(x)))",
    )
    assert ptx.count("shfl.sync.bfly.b32") == 2


def test_the_emitter_knows_every_word_and_no_other():
    assert set(vocabulary.__all__) == WORDS | {"cuda"}


# Shapes


@pytest.mark.parametrize("count", [1, 3])
def test_pieces_cover_every_place_once(count):
    access = Access(
        "f16",
        4,
        (Along(count, 8, None, "m", 1), Along(2, 4, 1024, "n", 512)),
        axis="n",
        guards=(Guard("n", ragged=True),),
    )
    places = [place for piece in pieces(access) for place in piece.places]
    assert sorted(places) == list(range(access.count))
    assert {piece.reaches["n"] for piece in pieces(access)} == {0, 512}
    assert access.runtime_steps == 1


@pytest.mark.parametrize(("dtype", "width"), [("f32", 8), ("f16", 3), ("f64", 4)])
def test_a_piece_has_at_most_16_bytes_and_a_power_of_two(dtype, width):
    with pytest.raises(AssertionError):
        Access(dtype, width)


# Numbers: what is built of plain LLVM runs on this machine too


def native(emit, argument, result):
    """Compile a function of one value for the CPU."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(result, [argument]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(emit(builder, function.args[0]))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
    engine.finalize_object()
    return engine, engine.get_function_address("f")


@pytest.mark.parametrize(
    ("dtype", "type_", "largest"),
    [("f8e4m3", ml_dtypes.float8_e4m3fn, 448), ("f8e5m2", ml_dtypes.float8_e5m2, 57344)],
)
def test_f8_without_the_instruction_rounds_to_even_and_saturates(dtype, type_, largest):
    engine, address = native(
        lambda builder, x: convert._encode_f8(builder, dtype, x), ir.FloatType(), ir.IntType(8)
    )
    encode = ctypes.CFUNCTYPE(ctypes.c_uint8, ctypes.c_float)(address)
    every = np.arange(256, dtype=np.uint8).view(type_).astype(np.float32)
    finite = np.unique(every[np.isfinite(every)])
    between = (finite[1:] + finite[:-1]) / 2
    values = np.concatenate(
        [
            finite,
            between,
            np.nextafter(between, np.inf, dtype=np.float32),
            np.nextafter(between, -np.inf, dtype=np.float32),
            np.array([1e9, -1e9, np.inf, -np.inf, 1e-30, -0.0, 0.0], np.float32),
        ]
    ).astype(np.float32)
    wanted = np.clip(values, -largest, largest).astype(type_)
    found = np.array([encode(float(x)) for x in values], np.uint8).view(type_)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))
    assert np.isnan(np.array([encode(float("nan"))], np.uint8).view(type_).astype(np.float32))
    del engine


def exp_f32(x):
    """The steps of `ptx.elementary.exp` in NumPy, the fused operations in f64."""
    f32, f64 = np.float32, np.float64
    log2_e = 1.4426950408889634
    high = f32(log2_e)
    t = np.clip((f64(x) * f64(f32(log2_e / 253)) + f64(f32(126 / 253))).astype(f32), 0, 1)
    shifted = (f64(t) * 253 + 12582913.0).astype(f32)
    minus_n = f32(12582912.0 + 127) - shifted
    r = (f64(x) * f64(high) + f64(minus_n)).astype(f32)
    r = (f64(x) * f64(f32(log2_e - f64(high))) + f64(r)).astype(f32)
    power = (shifted.view(np.int32) << 23).view(f32)
    return np.exp2(f64(r)).astype(f32) * power


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    # 127.5 powers of two; the last half power before overflow; subnormal results
    [(-87.3, 88.37, 0.9), (88.37, 88.72, 1.25), (-103.9, -87.3, 1.0)],
)
def test_the_reduction_of_exp_is_exact_enough(low, high, bound):
    # What the approximate 2^r of the hardware adds is measured on a GPU.
    x = np.linspace(low, high, 1_000_001).astype(np.float32)
    wanted = np.exp(x.astype(np.float64))
    error = np.abs(exp_f32(x).astype(np.float64) - wanted)
    assert (error / np.spacing(wanted.astype(np.float32))).max() <= bound


def test_exp_handles_what_is_out_of_range():
    x = np.array([-np.inf, -200, -110, 0, 89, 3e38, -3e38, np.inf], np.float32)
    with np.errstate(all="ignore"):
        found = exp_f32(x)
    np.testing.assert_array_equal(found, [0, 0, 0, 1, np.inf, np.inf, 0, np.inf])


def test_every_intrinsic_compiles_for_the_oldest_target():
    for dtype, width in itertools.product(("f16", "f8e4m3"), (2, 4)):
        ptx = ptx_of(
            f'a = t.load(t.Access("{dtype}", {width}), native_f8=False)\n'
            f'b = t.store(t.Access("{dtype}", {width}), native_f8=False)',
            "b(y, True, a(x))",
            target="8.0",
        )
        assert "e4m3x2" not in ptx


@pytest.mark.parametrize("peers", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    "codes", [("f32",), ("f32", "i64"), ("bool", "f32", "f64", "i32"), ("i64", "f32", "i64")]
)
def test_values_that_warps_exchange_are_aligned_to_their_access(codes, count, peers):
    starts = warps_rows(codes, count, peers)
    group = warps_bytes(codes, count, peers)
    taken: set[int] = set()
    for (part, _), start in starts.items():
        size = BYTES[codes[part]]
        own = set(range(start, start + size * peers))
        assert not own & taken
        taken |= own
        for base in (0, group):
            for first, width in _groups(peers, size):
                assert (base + start + first * size) % (width * size) == 0
    assert max(taken) < group
    # Eight groups side by side meet no bank twice.
    assert len({number * group % 128 // 16 for number in range(8)}) == 8
