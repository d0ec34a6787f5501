"""The `redlang` command: demo, explain, bench, doctor."""

from __future__ import annotations

import argparse
import ast
import math
import os
import platform
import re
import runpy
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import redlang
from redlang.errors import ArgumentError, RedlangError

if TYPE_CHECKING:
    from redlang.kernel import Kernel

STAGES = ("syntax", "program", "fuse", "plan", "loops")
PACKAGES = ("numpy", "scipy", "lark", "sympy", "numba", "llvmlite", "ml_dtypes")
OPTIONAL = ("torch", "cupy", "jax", "nvidia-nvvm", "nvidia-cuda-nvcc")
TESTING = ("hypothesis", "pytest")
ABSENT = "not installed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except RedlangError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as with `redlang explain ... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="redlang", description=__doc__)
    parser.add_argument("--version", action="version", version=f"redlang {redlang.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="run four fused kernels beside NumPy and Numba")
    demo.set_defaults(run=_demo)

    explain = commands.add_parser("explain", help="show what becomes of a kernel in a file")
    explain.add_argument(
        "kernel", metavar="FILE:KERNEL", help="such as examples/03_softmax.py:softmax"
    )
    explain.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_argument,
        help="of the call to explain: x=f16[4096,1024], x=[64,64] for f32, or a number; "
        "give all of a kernel's arguments or none",
    )
    explain.add_argument("--stage", choices=STAGES, help="one stage only")
    explain.set_defaults(run=_explain)

    bench = commands.add_parser("bench", help="measure redlang beside others on this machine")
    bench.add_argument(
        "what",
        nargs="?",
        choices=("workloads", "attention"),
        default="workloads",
        help="attention runs on a GPU",
    )
    bench.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    bench.add_argument("--only", metavar="TEXT", default="", help="those whose name holds TEXT")
    bench.add_argument("--rounds", type=_positive, default=None, help="runs a way (CPU, default 9)")
    bench.add_argument("--budget", metavar="S", type=_positive, help="stop after so many seconds")
    bench.add_argument("--peers", metavar="NAMES", help="such as torch,compile (GPU) or numpy")
    bench.add_argument("--json", metavar="FILE", type=Path, help="also write the figures to FILE")
    bench.add_argument("--picture", metavar="FILE", type=Path, help="also draw bars, .svg or .txt")
    bench.set_defaults(run=_bench)

    doctor = commands.add_parser("doctor", help="say what is installed and whether it works")
    doctor.set_defaults(run=_doctor)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


def _argument(text: str) -> tuple[str, object]:
    """Return a name, and a number or an array of one element that takes no memory."""
    import numpy as np

    from redlang.frontend.annotations import storage_name
    from redlang.ir.types import DTYPES
    from redlang.runtime.memory import numpy_dtype

    name, _, value = text.partition("=")
    array = re.fullmatch(r"(\w*)\[([\d, ]*)\]", value)
    if array is None:
        try:
            number = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            number = None
        if not isinstance(number, bool | int | float):
            raise argparse.ArgumentTypeError(f"{text!r}: write {name}=f32[64,128] or {name}=0.5")
        return name, number
    dtype = array[1] or "f32"
    if dtype not in DTYPES:
        known = storage_name(dtype)
        hint = (
            f"redlang writes {known}" if known in DTYPES else f"it is none of {', '.join(DTYPES)}"
        )
        raise argparse.ArgumentTypeError(f"{dtype!r} is no element type: {hint}")
    shape = tuple(map(int, array[2].replace(",", " ").split()))
    return name, np.broadcast_to(np.zeros((), numpy_dtype(dtype)), shape)


def _demo(_: argparse.Namespace) -> int:
    from redlang.bench.measure import measure, table
    from redlang.bench.workloads import WORKLOADS

    print("Four cascades, each proved to share its sweeps and compiled for this machine.\n")
    lines = []
    for workload in WORKLOADS:
        if not workload.demo:
            continue
        start = time.perf_counter()
        line = measure(workload, rounds=5, peers=("numpy", "numba"))
        lines.append(line)
        print(f"{workload.name}: first call {line.first_call_s:.2f} s")
        for sweeps in workload.kernel.sweeps:
            for axis, stages in sweeps:
                print(f"  sweep over {axis}: {', '.join(stages)}")
        print(f"  measured in {time.perf_counter() - start:.1f} s")
    print(f"\n{table(lines)}\n")
    print("error: largest difference from the double-precision reference, over the largest value")
    print("(2.0x): the other takes twice redlang's time")
    print("next: redlang explain FILE:KERNEL shows the proof and the plan of a kernel")
    return 0


def _explain(options: argparse.Namespace) -> int:
    from redlang import inspection

    kernel = _load(options.kernel)
    if options.arg:
        try:
            inspection.suppose(kernel.machine, dict(options.arg))
        except ArgumentError as error:
            error.hint = error.hint or _missing(kernel, dict(options.arg))
            raise
    print(kernel.explain(options.stage) if options.stage else kernel.explain())
    return 0


def _missing(kernel: Kernel, given: Mapping[str, object]) -> str:
    """Return how to give the arguments that a kernel still needs; nothing if there are none."""
    from redlang.frontend.syntax import ArrayAnnotation
    from redlang.runtime.arguments import is_scalar
    from redlang.runtime.binder import scalar_kind

    parts = []
    for parameter in kernel.machine.caller.declared.parameters:
        if parameter.name in given or parameter.default is not None:
            continue
        if is_scalar(parameter):
            value = {"float": "0.5", "bool": "True"}.get(scalar_kind(parameter), "8")
        else:
            assert isinstance(parameter.annotation, ArrayAnnotation)
            sizes = ",".join(["64"] * len(parameter.annotation.dims))
            value = f"{parameter.annotation.dtype or 'f32'}[{sizes}]"
        parts.append(f"--arg {parameter.name}={value}")
    return f"add {' '.join(parts)}" if parts else ""


def _load(place: str) -> Kernel:
    """Return the kernel that FILE:KERNEL names."""
    from redlang.kernel import Kernel

    file, colon, name = place.rpartition(":")
    if not colon and Path(place).is_file():
        file, name = place, ""
    if not file:
        raise RedlangError(f"{place!r} names no kernel", hint="write FILE:KERNEL")
    if not Path(file).is_file():
        raise RedlangError(f"there is no file {file}", hint=_meant(file, name))
    sys.path.insert(0, str(Path(file).resolve().parent))
    names = runpy.run_path(file)
    kernels = [key for key, value in names.items() if isinstance(value, Kernel)]
    if name not in kernels:
        problem = f"{file} has no kernel called {name}" if name else f"{place!r} names no kernel"
        found = f"choose one: {', '.join(f'{file}:{kernel}' for kernel in kernels)}"
        raise RedlangError(problem, hint=found if kernels else "the file has none")
    kernel: Kernel = names[name]
    return kernel


def _meant(file: str, name: str) -> str:
    """Return which file may be meant by one that is not there: a module, or a misspelling."""
    from redlang.frontend.builtins import nearest

    path = Path(file)
    found = [f"{file}.py", f"{file.replace('.', os.sep)}.py"]
    meant = next((each for each in found if Path(each).is_file()), None)
    if meant is None:
        close = nearest(path.name, (each.name for each in path.parent.glob("*.py")))
        meant = str(path.with_name(close)) if close else None
    return f"did you mean {meant}:{name}?" if meant else ""


def _bench(options: argparse.Namespace) -> int:
    if options.what == "attention" or options.backend == "cuda":
        return _bench_gpu(options)
    from redlang.bench.measure import ROUNDS, measure, table, write_json
    from redlang.bench.picture import Bars, write
    from redlang.bench.workloads import WORKLOADS

    chosen = [workload for workload in WORKLOADS if options.only in workload.name]
    if not chosen:
        raise RedlangError(
            f"no workload's name holds {options.only!r}",
            hint=f"they are {', '.join(workload.name for workload in WORKLOADS)}",
        )
    known = list(dict.fromkeys(name for workload in WORKLOADS for name in workload.peers))
    peers = options.peers.split(",") if options.peers else known
    unknown = [name for name in peers if name not in known]
    if unknown:
        raise RedlangError(
            f"no workload on the CPU has a peer {unknown[0]!r}", hint=f"they are {', '.join(known)}"
        )
    lines, until = [], time.monotonic() + (options.budget or math.inf)
    for workload in chosen:
        lines.append(measure(workload, rounds=options.rounds or ROUNDS, peers=peers))
        print(f"measured {workload.name}", file=sys.stderr)
        if time.monotonic() > until:
            left = len(chosen) - len(lines)
            print(f"{left} workloads are left: {options.budget} s are over", file=sys.stderr)
            break
    print(f"{os.cpu_count()} cores; medians of {options.rounds or ROUNDS} runs taken in turns")
    print("(2.0x): the other takes twice redlang's time")
    print(table(lines))
    if options.json:
        write_json(options.json, lines)
    if options.picture:
        groups = [
            Bars(line.workload, {t.name: 1e3 * t.median_ms for t in line.timings}) for line in lines
        ]
        write(options.picture, "medians on the CPU", groups)
    return 0


def _bench_gpu(options: argparse.Namespace) -> int:
    from redlang.bench import attention, gpu

    run = attention.main if options.what == "attention" else gpu.main
    given = ("only", "budget", "peers", "json", "picture")
    pairs = ((f"--{name}", getattr(options, name)) for name in given)
    return run([str(part) for pair in pairs if pair[1] for part in pair])


def _doctor(_: argparse.Namespace) -> int:
    print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
    for name in PACKAGES:
        print(f"{name} {_version(name)}")
    for name in OPTIONAL:
        print(f"{name} {_version(name)} (optional)")
    print(f"testing: {_testing()}")
    working = _try_cpu()
    return 0 if working and _try_gpu() else 1


def _testing() -> str:
    """Say whether what `redlang.testing` and the tests need is there."""
    found = {name: _version(name) for name in TESTING}
    missing = [name for name, release in found.items() if release == ABSENT]
    if missing:
        return f"{', '.join(missing)} {ABSENT} (pip install 'redlang[test]')"
    return ", ".join(f"{name} {release}" for name, release in found.items())


def _try_cpu() -> bool:
    """Compile and run a small kernel; say what happened."""
    import numpy as np

    start = time.perf_counter()
    try:
        kernel = redlang.compile(
            'def check(x: "m n") -> "m":\n    return mean[n]((x - mean[n](x)) ** 2)\n'
        )
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        right = bool(np.allclose(kernel(x), x.var(axis=1)))
    except Exception as error:  # whatever is broken is what is reported
        print(f"CPU: does not work: {type(error).__name__}: {error}")
        return False
    seconds = time.perf_counter() - start
    print(
        f"CPU: {'works' if right else 'gives a wrong value'}; compiled and ran in {seconds:.2f} s"
    )
    return right


def _try_gpu() -> bool:
    """Say what a GPU needs and has: the compiler, the driver, a device, a kernel that runs."""
    from redlang.runtime.checkup import gpu_findings

    works = True
    for finding in gpu_findings():
        print(f"GPU: {finding.text}")
        works = works and finding.fine
    return works


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT


if __name__ == "__main__":
    sys.exit(main())
