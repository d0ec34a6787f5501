"""Numba's part in the CPU target: the names that generated text may use, and text → object code."""

from __future__ import annotations

from typing import Any, TypeAlias

import llvmlite.binding as llvm
import numba
from numba.core import config, typed_passes, types, untyped_passes
from numba.core.compiler import CompilerBase
from numba.core.compiler_machinery import PassManager

from redlang.errors import BackendError
from redlang.targets import (
    cpu_folds,
    cpu_gemm,
    cpu_math,
    cpu_memory,
    cpu_numbers,
    cpu_scalar,
    cpu_trig,
    processor,
)
from redlang.targets.llvm import Context, Intrinsic, NumbaType, Value, intrinsic

Compiled: TypeAlias = Any
"""A function that Numba compiles, or has compiled."""

_ARRAYS = [
    types.CPointer(kind)  # type: ignore[no-untyped-call]  # Numba's
    for kind in (types.uint64, types.int64, types.float64)
]
_SIGNATURE = types.void(*_ARRAYS, types.int64, types.int64, types.uint64)


def _floating(x: NumbaType, *rest: NumbaType) -> NumbaType:
    """Type a function of floats that all have the same type."""
    return x if isinstance(x, types.Float) and all(r == x for r in rest) else None


def _same(x: NumbaType, *rest: NumbaType) -> NumbaType:
    """Type a function of numbers that all have the same type."""
    return x if isinstance(x, types.Number) and all(r == x for r in rest) else None


def _test(x: NumbaType) -> NumbaType:
    return types.boolean if isinstance(x, types.Float) else None


def _chosen(condition: NumbaType, yes: NumbaType, no: NumbaType) -> NumbaType:
    return yes if condition == types.boolean and yes == no else None


def _scaled(x: NumbaType, n: NumbaType) -> NumbaType:
    return x if isinstance(x, types.Float) and n == types.int64 else None


def _counted(x: NumbaType) -> NumbaType:
    return types.int64 if isinstance(x, types.Float) else None


def _ranked(x: NumbaType, best: NumbaType, place: NumbaType) -> NumbaType:
    return types.boolean if x == best and place == types.int64 else None


def _to(computed: NumbaType) -> Intrinsic:
    """Return a vocabulary function that changes the compute type."""

    def result(x: NumbaType) -> NumbaType:
        return computed if isinstance(x, types.Number | types.Boolean) else None

    return intrinsic(f"to_{computed}", 1, result, lambda x: cpu_numbers.convert(x, computed))


def _cast(dtype: str) -> Intrinsic:
    """Return a vocabulary function that rounds to an element type."""

    def result(x: NumbaType) -> NumbaType:
        return cpu_numbers.COMPUTED[dtype] if isinstance(x, types.Number | types.Boolean) else None

    return intrinsic(f"cast_{dtype}", 1, result, lambda x: cpu_numbers.cast(x, dtype))


def _logic(x: NumbaType, *rest: NumbaType) -> NumbaType:
    fits = x == types.boolean or isinstance(x, types.Integer)
    return x if fits and all(r == x for r in rest) else None


def vocabulary() -> dict[str, Intrinsic]:
    """Return the names that generated text may use, besides Python's own syntax."""
    math = {
        function.__name__: intrinsic(function.__name__, 1, _floating, function)
        for function in (
            *(cpu_math.exp, cpu_math.exp2, cpu_math.log, cpu_math.log2, cpu_math.tanh),
            *(cpu_math.sigmoid, cpu_math.erf, cpu_math.sqrt, cpu_math.rsqrt),
            *(cpu_trig.sin, cpu_trig.cos),
        )
    }
    return {
        **math,
        "power": intrinsic("power", 2, _floating, cpu_math.power),
        "ldexp": intrinsic("ldexp", 2, _scaled, cpu_math.ldexp),
        "absolute": intrinsic("absolute", 1, _same, abs),
        "sign": intrinsic("sign", 1, _same, cpu_scalar.sign),
        "floor": intrinsic("floor", 1, _same, cpu_scalar.floor),
        "ceil": intrinsic("ceil", 1, _same, cpu_scalar.ceil),
        "round_even": intrinsic("round_even", 1, _same, cpu_scalar.round_even),
        "minimum": intrinsic("minimum", 2, _same, cpu_scalar.minimum),
        "maximum": intrinsic("maximum", 2, _same, cpu_scalar.maximum),
        "clip": intrinsic("clip", 3, _same, cpu_scalar.clip),
        "floor_divide": intrinsic("floor_divide", 2, _same, cpu_scalar.floor_divide),
        "modulo": intrinsic("modulo", 2, _same, cpu_scalar.modulo),
        "fraction": intrinsic("fraction", 1, _floating, cpu_scalar.fraction),
        "exponent": intrinsic("exponent", 1, _counted, cpu_scalar.exponent),
        "ranks_above": intrinsic("ranks_above", 3, _ranked, cpu_scalar.ranks_above),
        "ranks_below": intrinsic("ranks_below", 3, _ranked, cpu_scalar.ranks_below),
        "is_nan": intrinsic("is_nan", 1, _test, Value.is_nan),
        "is_finite": intrinsic("is_finite", 1, _test, cpu_scalar.is_finite),
        "select": intrinsic("select", 3, _chosen, Value.choose),
        "logical_and": intrinsic("logical_and", 2, _logic, Value.__and__),
        "logical_or": intrinsic("logical_or", 2, _logic, Value.__or__),
        "logical_xor": intrinsic("logical_xor", 2, _logic, Value.__xor__),
        "logical_not": intrinsic("logical_not", 1, _logic, cpu_scalar.logical_not),
        "sum_add": intrinsic("sum_add", 2, _same, cpu_folds.sum_add),
        "sum_multiply_add": intrinsic("sum_multiply_add", 3, _same, cpu_folds.sum_multiply_add),
        "product_multiply": intrinsic("product_multiply", 2, _same, cpu_folds.product_multiply),
        **{f"to_{name}": _to(kind) for name, kind in _COMPUTE_TYPES.items()},
        **{f"cast_{dtype}": _cast(dtype) for dtype in cpu_numbers.STORED},
        **_COMPUTE_TYPES,
        "pointer": cpu_memory.pointer,
        "load": cpu_memory.load,
        "store": cpu_memory.store,
        "offset": cpu_memory.offset,
        "address_of": cpu_memory.address_of,
        "gemm": cpu_gemm.gemm,
        "inf": float("inf"),
        "nan": float("nan"),
    }


_COMPUTE_TYPES = {
    "bool": types.boolean,
    "i64": types.int64,
    "u64": types.uint64,
    "f32": types.float32,
    "f64": types.float64,
}
_VOCABULARY = vocabulary()


def compile_entries(
    text: str, entries: tuple[str, ...], filename: str
) -> tuple[tuple[bytes, ...], tuple[tuple[str, str], ...]]:
    """Compile entry points of a text; return an object file for each, and its symbol by name."""
    namespace = dict(_VOCABULARY)
    exec(compile(text, filename, "exec"), namespace)
    compiled = [_compile(namespace[entry]) for entry in entries]
    symbols = tuple((entry, f.native_name) for entry, f in zip(entries, compiled, strict=True))
    return tuple(function._library._get_compiled_object() for function in compiled), symbols


class _Pipeline(CompilerBase):
    """Numba's passes without those that rewrite what generated text does not contain.

    Closures, comprehensions, array expressions and dynamic exceptions have passes of their own in
    Numba's default pipeline; without them a kernel compiles a quarter faster.
    """

    def define_pipelines(self) -> list[PassManager]:
        """Return the only pipeline."""
        manager: Context = PassManager("redlang")  # type: ignore[no-untyped-call]  # Numba's
        for passed, label in _PASSES:
            manager.add_pass(passed, label)
        manager.finalize()
        return [manager]


_PASSES = (
    (untyped_passes.TranslateByteCode, "analyzing bytecode"),
    (untyped_passes.FixupArgs, "fix up args"),
    (untyped_passes.IRProcessing, "processing IR"),
    (untyped_passes.ReconstructSSA, "ssa"),
    (typed_passes.NopythonTypeInference, "nopython frontend"),
    (typed_passes.PreLowerStripPhis, "remove phis nodes"),
    (typed_passes.IRLegalization, "ensure IR is legal"),
    (typed_passes.AnnotateTypes, "annotate types"),
    (typed_passes.NativeLowering, "native lowering"),
    (typed_passes.NoPythonBackend, "nopython mode backend"),
)


def check_processor() -> None:
    """Raise BackendError where Numba compiles for another processor than its variables name."""
    # Numba makes its settings as it is imported.
    settings: Any = config
    name = settings.CPU_NAME or llvm.get_host_cpu_name()
    stated = processor.features() if settings.CPU_FEATURES is None else settings.CPU_FEATURES
    if (name, stated) != (processor.name(), processor.features()):
        raise BackendError(
            f"Numba's configuration names the processor {name}, and its variables of the "
            f"environment {processor.name()}",
            hint="set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES before Python starts",
        )


def _compile(function: Compiled) -> Compiled:
    options = {"nopython": True, "error_model": "numpy", "pipeline_class": _Pipeline}
    return numba.cfunc(_SIGNATURE, **options)(function)  # type: ignore[arg-type]  # undeclared


def llvm_text(text: str, entry: str) -> str:
    """Return the optimised LLVM text of an entry point, for tests and curious readers."""
    namespace = dict(_VOCABULARY)
    exec(compile(text, "<llvm>", "exec"), namespace)
    return str(_compile(namespace[entry]).inspect_llvm())
