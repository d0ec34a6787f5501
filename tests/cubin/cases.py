"""Kernels with plans and inputs that reach every part of the CUDA emitter.

The same cases run in the simulator (`tests/cubin`) and on a GPU (`tests/gpu`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from redlang.ir.loops import GridAxis
from redlang.schedule.plan import NestPlan
from redlang.schedule.threads import Spread, ThreadPlan

SOFTMAX = """
def softmax(x: "m n") -> "m n":
    p = exp(x - max[n](x))
    return p / sum[n](p)
"""
LOGSUMEXP = """
def logsumexp(x: "m n") -> "m":
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top
"""
VARIANCE = """
def variance(x: "m n") -> "m":
    mu = mean[n](x)
    return mean[n]((x - mu) ** 2)
"""
WEIGHED = """
def spread(w: "m n", x: "m n c") -> "m":
    centre = sum[n](w * x) / sum[n](w)
    return sum[n, c](w * (x - centre) ** 2)
"""
COLUMNS = """
def columns(x: "n m") -> "m":
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top
"""
TOP = """
def top(x: "m n") -> ("m j", "m j"):
    values, indices = topk[n:j](x, 4)
    return values, indices
"""
ARGMAX = """
def best(x: "m n") -> "m":
    return argmax[n](x)
"""
ARGMIN = """
def worst(x: "m n") -> "m":
    return argmin[n](x)
"""
LAYER_NORM = """
def layer_norm(x: "m n", g: "n", b: "n") -> "m n":
    mu = mean[n](x)
    v = mean[n]((x - mu) ** 2)
    return (x - mu) * rsqrt(v + 1e-5) * g + b
"""
CROSS_ENTROPY = """
def cross_entropy(x: "m n", y: "i32[m]") -> "m":
    top = max[n](x)
    return log(sum[n](exp(x - top))) + top - fill(x[m, y[m]], 0)
"""
MASKED = """
def masked(x: "m n") -> "m":
    return sum[n](where(n <= m, x))
"""
LOGIC = """
def logic(x: "m n") -> ("m", "m", "m"):
    return any[n](x > 2), all[n](x > -9), count[n](x > 0)
"""
PRODUCT = """
def product(x: "m n") -> "m":
    return prod[n](x)
"""
SCALED = """
def scaled(x: "m n", a: float, k: int) -> "m n":
    return x * a + k
"""
TO_F8 = """
def to_f8(x: "m n") -> ("f8e4m3[m n]", "m"):
    scale = max[n](abs(x)) / 448
    return f8e4m3(x / scale), scale
"""
BODIES = """
def bodies(w: "b n", r: "b n c") -> "b c":
    return sum[n](w * r)
"""


@dataclass(frozen=True)
class Case:
    """A kernel with one way to run it.

    Attributes:
        name: What the test is called.
        text: The kernel.
        arrays: A generator's arrays by parameter.
        nest_plans, thread_plans: How it runs.
        mode: What may be fused.
        tolerance: Largest error over the largest result; 0 for exact.
        options: Further arguments of `running.Run`.
        kinds: Kinds of scalar parameters.
    """

    name: str
    text: str
    arrays: Callable[[np.random.Generator], dict[str, Any]]
    nest_plans: tuple[NestPlan, ...]
    thread_plans: tuple[ThreadPlan, ...]
    mode: str = "auto"
    tolerance: float = 3e-6
    options: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=dict)


def grid(**tiles):
    return tuple(GridAxis(axis, tile) for axis, tile in tiles.items())


def on_chip(limit, *, tiles=(), axis="n", **rows):
    return NestPlan("on-chip", grid(**(rows or {"m": 1})), tiles, (axis,), None, ((axis, limit),))


def streamed(tile, *, tiles=(), axis="n", resident=(), limits=(), **rows):
    looped = ((axis, tile), *tiles)
    base = grid(**(rows or {"m": 1}))
    return NestPlan("multi-segment", base, looped, resident, axis, limits)


def threads(*spreads, **options):
    return ThreadPlan(tuple(spreads), **options)


def normal(dtype, *shape):
    def make(rng):
        return {"x": rng.standard_normal(shape).astype(dtype)}

    return make


def special(dtype, *shape):
    """Rows with NaN of both signs, ties and nothing but -inf."""

    def make(rng):
        x = rng.standard_normal(shape).astype(dtype)
        x[0, 5] = np.nan
        x[0, 3] = -x[0, 5]
        x[1] = -np.inf
        x[2, [7, 9]] = 50
        x[3, 3:6] = np.nan
        return {"x": x}

    return make


BF16 = ml_dtypes.bfloat16
ROW = Spread("n", 1, 32, 8)
STRIP = Spread("n", 1, 128, 4)


def cases():
    """Yield every case."""
    half: dict[str, Any] = {"mode": "never", "tolerance": 1e-3}
    yield Case(
        "softmax", SOFTMAX, normal(np.float16, 5, 256), (on_chip(256),), (threads(ROW),), **half
    )
    yield Case(
        "softmax of whole groups and a tail",
        SOFTMAX,
        normal(np.float16, 5, 200),
        (on_chip(256),),
        (threads(ROW),),
        **half,
    )
    yield Case(
        "softmax of ragged rows",
        SOFTMAX,
        normal(np.float16, 5, 203),
        (on_chip(256),),
        (threads(Spread("n", 2, 128, 1)),),
        **half,
    )
    yield Case(
        "softmax across warps",
        SOFTMAX,
        normal(np.float32, 3, 512),
        (on_chip(512),),
        (threads(Spread("n", 2, 64, 4)),),
        mode="never",
    )
    yield Case(
        "softmax over a cluster",
        SOFTMAX,
        normal(np.float32, 3, 1021),
        (on_chip(1024),),
        (threads(Spread("n", 2, 256, 2), blocks=4),),
        mode="never",
    )
    for name, text, dtype in (("top", TOP, np.float16), ("argmax", ARGMAX, np.float32)):
        yield Case(
            f"{name} over a cluster",
            text,
            special(dtype, 4, 1000),
            (on_chip(1024, tiles=(("j", 4),) if text is TOP else ()),),
            (threads(Spread("n", 2, 256, 2), blocks=4),),
            mode="never",
            tolerance=0,
        )
    yield Case(
        "softmax over a cluster of small blocks, fused",
        SOFTMAX,
        normal(np.float16, 2, 2048),
        (on_chip(2048),),
        (threads(Spread("n", 4, 64, 8), blocks=2),),
        **half,
    )
    yield Case(
        "softmax with several rows a block",
        SOFTMAX,
        normal(np.float16, 7, 256),
        (on_chip(256),),
        (threads(Spread("n", 4, 8, 8), units=4),),
        **half,
    )
    yield Case(
        "softmax of misaligned rows",
        SOFTMAX,
        normal(np.float16, 4, 256),
        (on_chip(256),),
        (threads(ROW),),
        options={"offset": 3},
        **half,
    )
    for segments in (1, 3, 7):
        yield from _streamed(segments)
    yield from _joined()
    yield from _ahead()
    yield from _in_shared()
    yield from _extremes()
    yield from _lists()
    yield from _others()


def _streamed(segments):
    def shifted(rng):
        return {"x": rng.standard_normal((3, 5000)).astype(np.float32) + 10}

    for name, text in (("variance", VARIANCE), ("logsumexp", LOGSUMEXP)):
        for kind, strips in (("strips", ("n",)), ("tiles", ())):
            for backwards in (False, True) if segments == 3 else (False,):
                order = " backwards" if backwards else ""
                yield Case(
                    f"{name} in {segments} segments of {kind}{order}",
                    text,
                    shifted,
                    (streamed(512),),
                    (threads(STRIP, strips=strips),),
                    options={"segments": segments, "backwards": backwards},
                )


def _joined():
    """Yield sweeps whose parts meet at reference points far from where most of them began."""

    def shifted(rng):
        x = rng.standard_normal((4, 5000)).astype(np.float32)
        x[0] += 1e4
        x[1, 2000:] += 3
        x[2, 4999] = np.nan
        x[3, 17] = np.inf
        return {"x": x}

    def weighed(rng):
        x = rng.standard_normal((3, 4000, 3)).astype(np.float32) + 50
        return {"w": rng.random((3, 4000), np.float32) * (rng.random((3, 4000)) < 0.5), "x": x}

    for name, text in (("variance", VARIANCE), ("logsumexp", LOGSUMEXP), ("masked", MASKED)):
        for segments in (1, 3):
            yield Case(
                f"{name} of shifted rows, {segments} parts",
                text,
                shifted,
                (streamed(512),),
                (threads(STRIP, strips=("n",)),),
                tolerance=2e-5,
                options={"segments": segments},
            )
    # The states of many threads are folded in columns.
    for segments, own in ((1, 128), (40, 32)):
        yield Case(
            f"spread of weighed points, {segments} parts",
            WEIGHED,
            weighed,
            (streamed(2 * own, resident=("c",), limits=(("c", 3),)),),
            (threads(Spread("c", 3), Spread("n", 1, own, 2), strips=("n",)),),
            tolerance=2e-5,
            options={"segments": segments, "exact": ("c",)},
        )


def _ahead():
    """Yield sweeps whose loads run ahead: more tiles than slots, fewer, ragged ends, blocks."""
    for length, segments, ahead in ((5000, 1, 2), (5001, 3, 4), (700, 1, 4), (4096, 2, 1)):
        for name, text in (("variance", VARIANCE), ("masked", MASKED)):
            yield Case(
                f"{name} of {length}, {segments} parts, {ahead} tiles ahead",
                text,
                normal(np.float32, 3, length),
                (streamed(512),),
                (threads(STRIP, strips=("n",), ahead=ahead),),
                options={"segments": segments},
            )
    yield Case(
        "logsumexp of halves, units in warps, tiles ahead",
        LOGSUMEXP,
        normal(np.float16, 6, 3000),
        (streamed(512),),
        (threads(Spread("n", 2, 32, 8), strips=("n",), units=4, ahead=2),),
        tolerance=1e-3,
    )

    def weighed(rng):
        x = rng.standard_normal((3, 3000, 3)).astype(np.float32) + 50
        return {"w": rng.random((3, 3000), np.float32), "x": x}

    yield Case(
        "spread of weighed points, tiles ahead",
        WEIGHED,
        weighed,
        (streamed(256, resident=("c",), limits=(("c", 3),)),),
        (threads(Spread("c", 3), Spread("n", 2, 32, 4), strips=("n",), ahead=2),),
        tolerance=2e-5,
        options={"segments": 4, "exact": ("c",)},
    )
    yield Case(
        "columns, tiles ahead",
        COLUMNS,
        normal(np.float32, 170, 72),
        (streamed(8, m=64),),
        (threads(Spread("n", 2, 4, 1), Spread("m", 1, 16, 4), strips=("n",), ahead=4),),
    )


PEAK = """
def peak(x: "m n") -> ("m", "m", "m n"):
    d = x - mean[n](x)
    s = rsqrt(mean[n](d * d) + 1e-5)
    return max[n](d * s), argmax[n](x), d * s
"""
ROUNDED = """
def scaled(x: "m n", g: "n") -> ("m n", "m"):
    y = x * rsqrt(mean[n](x * x) + 1e-6) * g
    scale = max[n](abs(y)) / 448
    return y / scale, scale
"""


def _in_shared():
    """Yield rows in shared memory: several parts or one, ragged, with results beside the rows."""
    for length, spread in (
        (2048, Spread("n", 4, 64, 8)),
        (2000, Spread("n", 8, 32, 8)),
        (1003, Spread("n", 8, 128, 1)),
        (512, Spread("n", 2, 32, 8)),
        (3000, Spread("n", 8, 128, 4)),
    ):
        for name, text, dtype in (("softmax", SOFTMAX, np.float16), ("peak", PEAK, np.float32)):
            yield Case(
                f"{name} of {length} in shared memory",
                text,
                normal(dtype, 5, length),
                (on_chip(spread.extent),),
                (threads(spread, shared=True),),
                mode="never",
                tolerance=1e-3 if dtype == np.float16 else 3e-6,
            )

    def norm(length, gains):
        def make(rng):
            names = ("x", *gains)
            shapes = ((5, length), *((length,) for _ in gains))
            made = (rng.standard_normal(shape).astype(BF16) for shape in shapes)
            return dict(zip(names, made, strict=True))

        return make

    for name, text, gains in (("layer norm", LAYER_NORM, "gb"), ("scaled", ROUNDED, "g")):
        for mode in ("never", "auto"):
            yield Case(
                f"{name} in shared memory, {mode}",
                text,
                norm(1024, gains),
                (on_chip(1024),),
                (threads(Spread("n", 4, 32, 8), units=4, shared=True),),
                mode=mode,
                tolerance=1e-2,
            )
    yield Case(
        "a mask of indices, in shared memory",
        MASKED,
        normal(np.float32, 40, 200),
        (on_chip(256),),
        (threads(Spread("n", 8, 32, 1), shared=True),),
        mode="never",
    )


MASKED_BEST = """
def best(x: "m n") -> ("m", "m"):
    y = where(n < 9 * m, x)
    return argmax[n](y), argmin[n](y)
"""


def _extremes():
    """Yield what is looked for by value first: many elements a thread, masks, rows of one value."""

    def made(rng):
        x = special(np.float32, 30, 256)(rng)["x"]
        x[4] = np.inf
        x[5, 1::2] = -0.0
        x[5, ::2] = 0.0
        x[6, 40:] = -np.inf
        return {"x": x}

    for name, text in (("argmax", ARGMAX), ("argmin", ARGMIN), ("masked", MASKED_BEST)):
        for length in (256, 250):
            yield Case(
                f"{name} of {length}, eight and more a thread",
                text,
                lambda rng, length=length: {"x": made(rng)["x"][:, :length].copy()},
                (on_chip(256),),
                (threads(Spread("n", 8, 32, 1)),),
                mode="never",
                tolerance=0,
            )


def _lists():
    for dtype in (np.float16, BF16, np.float32, np.float64):
        label = np.dtype(dtype).name
        for name, text in (("top", TOP), ("argmax", ARGMAX), ("argmin", ARGMIN)):
            yield Case(
                f"{name} of {label}",
                text,
                special(dtype, 4, 600),
                (on_chip(640, tiles=(("j", 4),)),),
                (threads(Spread("n", 5, 128, 1)),),
                mode="never",
                tolerance=0,
            )
        yield Case(
            f"top of {label} in three segments",
            TOP,
            special(dtype, 4, 600),
            (streamed(128, tiles=(("j", 4),)),),
            (threads(Spread("n", 2, 64, 1), strips=("n",)),),
            tolerance=0,
            options={"segments": 3},
        )


def _others():
    def norm(rng):
        x = rng.standard_normal((4, 256)).astype(BF16)
        g, b = (rng.standard_normal(256).astype(BF16) for _ in range(2))
        return {"x": x, "g": g, "b": b}

    yield Case(
        "layer norm",
        LAYER_NORM,
        norm,
        (on_chip(256),),
        (threads(ROW),),
        mode="never",
        tolerance=1e-2,
    )
    yield Case(
        "columns, lanes along the axis that stays",
        COLUMNS,
        normal(np.float32, 70, 72),
        (streamed(8, m=64),),
        (threads(Spread("n", 2, 4, 1), Spread("m", 1, 16, 4), strips=("n",)),),
    )

    def labelled(rng):
        x = rng.standard_normal((4, 300)).astype(np.float32)
        return {"x": x, "y": np.array([3, 299, -1, 300], np.int32)}

    yield Case(
        "cross entropy with labels inside and outside",
        CROSS_ENTROPY,
        labelled,
        (streamed(128),),
        (threads(Spread("n", 1, 32, 4), strips=("n",)),),
    )
    yield Case(
        "a mask of indices",
        MASKED,
        normal(np.float32, 40, 50),
        (on_chip(64),),
        (threads(Spread("n", 2, 32, 1)),),
        mode="never",
    )
    yield Case(
        "any, all and count",
        LOGIC,
        normal(np.float32, 6, 100),
        (on_chip(128),),
        (threads(Spread("n", 4, 32, 1)),),
        mode="never",
        tolerance=0,
    )

    def large(rng):
        return {"x": (rng.standard_normal((3, 90)) * 1e5).astype(np.float32)}

    def alternating(rng):
        factors = np.where(np.arange(90) < 45, 1e20, 1e-20).astype(np.float32)
        return {"x": factors * rng.uniform(0.9, 1.1, (3, 90)).astype(np.float32)}

    yield Case(
        "a product whose parts overflow",
        PRODUCT,
        alternating,
        (on_chip(96),),
        (threads(Spread("n", 3, 32, 1)),),
        mode="never",
        tolerance=1e-5,
    )
    yield Case(
        "scalars and a map",
        SCALED,
        lambda rng: {**large(rng), "a": 0.5, "k": 7},
        (NestPlan("map", grid(m=1, n=64), (), ()),),
        (threads(Spread("n", 2, 32, 1)),),
        kinds={"a": "float", "k": "int"},
    )
    yield Case(
        "rows scaled to f8",
        TO_F8,
        normal(np.float32, 3, 256),
        (on_chip(256),),
        (threads(Spread("n", 1, 64, 4)),),
        mode="never",
        tolerance=1e-6,
    )

    def points(rng):
        return {
            "w": rng.random((2, 256)).astype(np.float32),
            "r": rng.standard_normal((2, 256, 3)).astype(np.float32),
        }

    yield Case(
        "points of three coordinates, loaded as one run",
        BODIES,
        points,
        (streamed(128, b=1, c=3),),
        (threads(Spread("n", 1, 32, 4), Spread("c", 3), strips=("n",)),),
        options={"exact": ("c",)},
    )
