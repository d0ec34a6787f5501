"""`redlang bench attention`: attention as five lines of text, beside the kernels of torch on a GPU.

cuDNN and FlashAttention-2 through `scaled_dot_product_attention`, FlexAttention compiled, and
`torch.compile` of the same formula; whatever one of them cannot do is left out. Every result is
compared with float64 on a part of the problem first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import redlang
from redlang.bench.gpu_times import REST, graph_us
from redlang.bench.picture import Bars, write
from redlang.kernel import Kernel
from redlang.runtime.driver import require_driver

TEXT = """\
def attention(q: "b {heads} m d", k: "b {shared} n d", v: "b {shared} n e") -> "b {heads} m e":
    s = sum[d](q * k) * rsqrt(size(d))
{mask}    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)
"""
CAUSAL = "    s = where(n <= m + (size(n) - size(m)), s)\n"
PEERS = ("cudnn", "flash2", "flex", "compile")


@dataclass(frozen=True, slots=True)
class Problem:
    """One attention: batches, heads, heads of keys, lengths, widths."""

    batch: int
    heads: int
    length: int
    width: int
    causal: bool = False
    shared: int = 0
    queries: int = 0
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        heads = f"{self.heads}:{self.shared} heads" if self.shared else f"h{self.heads}"
        length = f"{self.queries}×{self.length}" if self.queries else f"L{self.length}"
        causal = " causal" if self.causal else ""
        return f"B{self.batch} {heads} {length} d{self.width}{causal} {self.dtype}"

    @property
    def flops(self) -> float:
        """Multiplications and additions of both products."""
        rows = self.queries or self.length
        seen = rows * self.length
        if self.causal:
            seen -= rows * (rows - 1) // 2
        return 4.0 * self.batch * self.heads * seen * self.width

    @property
    def kernel(self) -> Kernel:
        """The kernel, compiled at its first call."""
        heads, shared = ("(g r)", "g") if self.shared else ("h", "h")
        return redlang.compile(
            TEXT.format(heads=heads, shared=shared, mask=CAUSAL if self.causal else "")
        )

    def inputs(self) -> tuple[Any, ...]:
        """Return random q, k, v on the device."""
        t = importlib.import_module("torch")
        dtype = getattr(t, self.dtype)
        shape = (self.batch, self.shared or self.heads, self.length, self.width)
        q_shape = (self.batch, self.heads, self.queries or self.length, self.width)
        return tuple(t.randn(each, device="cuda", dtype=dtype) for each in (q_shape, shape, shape))


PROBLEMS = (
    *(Problem(1, 64, length, 128, causal=True) for length in (1024, 2048, 4096, 8192)),
    Problem(4, 16, 4096, 128),
    Problem(1, 16, 16384, 128),
    Problem(32, 12, 512, 64),
    Problem(128, 16, 512, 64),
    Problem(32, 12, 197, 64),
    Problem(32, 16, 257, 80),
    Problem(4, 16, 4096, 64),
    Problem(4, 16, 4096, 64, causal=True),
    Problem(4, 32, 4096, 128, causal=True, shared=8),
    Problem(16, 32, 8192, 128, shared=8, queries=1),
)


@dataclass(slots=True)
class Line:
    """One problem's figures: µs by way, relative error, what went wrong by way."""

    name: str
    flops: float
    times: dict[str, float] = field(default_factory=dict)
    error: float = 0.0
    problems: dict[str, str] = field(default_factory=dict)
    plan: str = ""


def ways(problem: Problem, peers: Sequence[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what computes a problem: redlang, then the peers that this torch has."""
    yield "redlang", problem.kernel
    t = importlib.import_module("torch")
    native = importlib.import_module("torch.nn.functional").scaled_dot_product_attention
    grouped = {"enable_gqa": True} if problem.shared else {}
    lower = problem.causal and (problem.queries or problem.length) == problem.length
    backends = importlib.import_module("torch.nn.attention")

    def chosen(backend: object, q: object, k: object, v: object) -> object:
        with backends.sdpa_kernel(backend):
            return native(q, k, v, is_causal=lower, **grouped)

    if "cudnn" in peers:
        yield "cudnn", partial(chosen, backends.SDPBackend.CUDNN_ATTENTION)
    if "flash2" in peers:
        yield "flash2", partial(chosen, backends.SDPBackend.FLASH_ATTENTION)
    if "flex" in peers:
        flex = importlib.import_module("torch.nn.attention.flex_attention")
        block = None
        if lower:
            size = problem.length
            block = flex.create_block_mask(lambda b, h, m, n: m >= n, None, None, size, size)
        yield "flex", partial(t.compile(flex.flex_attention), block_mask=block, **grouped)
    if "compile" in peers:
        yield "compile", t.compile(partial(written, problem.causal))


def written(causal: bool, q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401  (tensors)
    """Compute attention as one writes it in torch."""
    t = importlib.import_module("torch")
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        rows, columns = s.shape[-2:]
        seen = t.ones(rows, columns, dtype=t.bool, device=s.device).tril(columns - rows)
        s = s.masked_fill(~seen, float("-inf"))
    return t.softmax(s, -1) @ v


def measure(problem: Problem, peers: Sequence[str]) -> Line:
    """Return the figures of one problem."""
    line = Line(str(problem), problem.flops)
    q, k, v = problem.inputs()
    group = q.shape[1] // k.shape[1]
    part = [x.double() for x in (q[:1, :group], k[:1, :1], v[:1, :1])]
    right = written(problem.causal, *part)
    for name, way in ways(problem, peers):
        try:
            found = way(q, k, v)
            if name == "redlang":
                wrong = found[:1, :group].double() - right
                line.error = float(wrong.norm() / right.norm())
                line.plan = _family(way)
            line.times[name] = graph_us([partial(way, q, k, v)], 5, REST)
        except Exception as error:  # a peer that cannot do it is a finding
            line.problems[name] = f"{type(error).__name__}: {error}"[:200]
    return line


def _family(kernel: object) -> str:
    assert isinstance(kernel, Kernel)
    return "; ".join(x for x in str(kernel.explain("plan")).splitlines() if x.startswith("nest"))


def table(lines: Sequence[Line]) -> str:
    """Return the figures as text; ratios are the peer's time over redlang's."""
    names = [name for name in PEERS if any(name in line.times for line in lines)]
    head = f"{'attention':42} {'redlang':>9} {'TFLOP/s':>8} {'error':>8}"
    rows = [head + "".join(f" {name:>9} {'×':>5}" for name in names)]
    for line in lines:
        ours = line.times.get("redlang")
        if ours is None:
            rows.append(f"{line.name:42} {line.problems.get('redlang', '')[:110]}")
            continue
        row = f"{line.name:42} {ours:9.1f} {line.flops / ours / 1e6:8.0f} {line.error:8.1e}"
        for name in names:
            us = line.times.get(name)
            row += f" {us:9.1f} {us / ours:5.2f}" if us else f" {'-':>9} {'-':>5}"
        rows.append(row)
    for name in names:
        both = [x.times for x in lines if {name, "redlang"} <= {*x.times}]
        ratios = [times[name] / times["redlang"] for times in both]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            rows.append(f"geometric mean of {name} over redlang: {mean:.2f}")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = argparse.ArgumentParser(prog="redlang bench attention", description=__doc__)
    parser.add_argument("--only", default="", help="problems whose name holds this")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which it stops")
    parser.add_argument("--json", type=Path, help="file for all figures")
    parser.add_argument("--picture", type=Path, help="file for bars, .svg or .txt")
    options = parser.parse_args(arguments)
    require_driver()
    begun = time.perf_counter()
    lines: list[Line] = []
    for problem in PROBLEMS:
        if options.only not in str(problem):
            continue
        if time.perf_counter() - begun > options.budget:
            print(f"out of time before {problem}", file=sys.stderr)
            break
        lines.append(measure(problem, options.peers.split(",")))
        print(f"measured {problem}", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps([asdict(line) for line in lines]))
    print(table(lines))
    if options.picture:
        write(options.picture, "attention", [Bars(line.name, line.times) for line in lines])
    return 0
