import json
import os
import re

import numpy as np
import pytest

from redlang import cli
from redlang.bench.measure import Line, Timing, measure, table, write_json
from redlang.bench.workloads import WORKLOADS, Workload
from redlang.cli import main

KERNEL = """
import redlang

@redlang.kernel
def total(x: "m n") -> "m":
    return sum[n](x)

@redlang.kernel
def wrong(x: "m n") -> "m":
    return sum[k](x)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return path


def small(workload):
    """The workload on arrays that are quick."""

    def inputs(rng):
        def cut(array):
            whole = np.array(array)
            if whole.dtype.kind == "i":
                return whole[:5] % 40
            return whole[
                tuple(slice(0, 5 if i + 1 < whole.ndim else 40) for i in range(whole.ndim))
            ]

        return tuple(map(cut, SMALL[workload.name](rng)))

    return Workload(
        workload.name, workload.kernel, inputs, workload.peers, workload.bytes, demo=workload.demo
    )


def normal(*shapes):
    return lambda rng: tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


SMALL = {
    "attention 1x8x2048x64": normal(*[(1, 2, 5, 8)] * 3),
    "softmax 4096x4096": normal((5, 40)),
    "softmax 64x65536": normal((5, 40)),
    "variance 4096x4096": normal((5, 40)),
    "layer_norm 4096x1024": normal((5, 40), (40,), (40,)),
    "cross_entropy 512x50000": lambda rng: (
        rng.normal(size=(5, 40)).astype(np.float32),
        rng.integers(0, 40, 5),
    ),
    "inertia 64x65536x3": lambda rng: (
        rng.random((5, 40), np.float32),
        rng.normal(size=(5, 40, 3)).astype(np.float32),
    ),
}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
@pytest.mark.filterwarnings("ignore:.*:numba.core.errors.NumbaWarning")
def test_all_ways_to_a_workload_agree(workload):
    arrays = SMALL[workload.name](np.random.default_rng(0))
    right = workload.kernel.reference(*arrays)
    np.testing.assert_allclose(workload.kernel(*arrays), right, rtol=1e-4, atol=1e-5)
    for name, peer in workload.peers.items():
        if name == "torch":
            torch = pytest.importorskip("torch", reason="torch is not installed")
            given = tuple(torch.from_numpy(array) for array in arrays)
            result = peer(*given).numpy()
        else:
            result = peer(*arrays)
        np.testing.assert_allclose(result, right, rtol=1e-3, atol=1e-4, err_msg=name)


def test_measuring_gives_every_figure(tmp_path):
    workload = small(next(w for w in WORKLOADS if w.name.startswith("variance")))
    line = measure(workload, rounds=3, peers=("numpy",))
    assert line.error < 1e-5
    ratio = line.ratio("numpy")
    assert ratio is not None
    assert ratio > 0
    assert line.ratio("torch") is None
    path = tmp_path / "figures.json"
    write_json(path, [line])
    content = json.loads(path.read_text())
    assert content["lines"][0]["timings"][0]["name"] == "redlang"
    assert "numpy" in content["machine"]


def test_the_table_shows_ratios():
    timings = (Timing("redlang", 2.0, 1.9, 2.1), Timing("numpy", 6.0, 5, 7))
    text = table([Line("softmax", 1e-7, 1, 0.5, 10.0, timings)])
    assert "(3.0x)" in text
    assert text.splitlines()[1].startswith("softmax")


def test_the_table_shows_no_bandwidth_where_arithmetic_is_the_limit():
    timings = (Timing("redlang", 2.0, 2.0, 2.0),)
    heading, line = table([Line("attention", 1e-7, 1, 0.5, None, timings)]).splitlines()
    assert heading.split() == ["workload", "error", "sweeps", "GB/s", "redlang"]
    assert line.split()[:5] == ["attention", "1e-07", "1", "-", "2.00"]


def test_explain_shows_a_kernel_of_a_file(file, capsys):
    assert main(["explain", f"{file}:total", "--stage", "program"]) == 0
    assert "sum[n](x[m, n])" in capsys.readouterr().out


def test_explain_speaks_of_the_arguments_that_it_is_given(file, capsys):
    given = ["--arg", "x=f16[3,70000]"]
    assert main(["explain", f"{file}:total", *given, "--stage", "plan"]) == 0
    assert "for m = 3, n = 70000" in capsys.readouterr().out
    assert main(["explain", f"{file}:total", *given, "--stage", "program"]) == 0
    assert "f16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["x=f32[3]"], "has 1 dimension,"),
        (["y=f32[3,4]"], "it takes x and out"),
        (["x=0.5"], "must be an array"),
        (["y=f32[3]"], "it takes x and out"),
    ],
)
def test_explain_checks_the_arguments_that_it_is_given(file, capsys, given, message):
    assert main(["explain", f"{file}:total", *(f"--arg={text}" for text in given)]) == 1
    assert message in capsys.readouterr().err


def test_explain_says_how_the_other_arguments_are_given(tmp_path, capsys):
    path = tmp_path / "kernels.py"
    path.write_text(
        "import redlang\n\n@redlang.kernel\n"
        'def mixed(x: "m n", y: "i32[n]", s: float, k: int, flag: bool, t: float = 1.0) -> "m n":\n'
        "    return where(flag, x, y) * s * k * t\n"
    )
    assert main(["explain", f"{path}:mixed", "--arg", "y=i32[9]"]) == 1
    hint = "hint: add --arg x=f32[64,64] --arg s=0.5 --arg k=8 --arg flag=True\n"
    assert capsys.readouterr().err.endswith(hint)
    given = hint.split()[2:]
    assert main(["explain", f"{path}:mixed", *given, "--arg", "y=i32[64]"]) == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("x=float32[9,5]", "'float32' is no element type: redlang writes f32"),
        ("x=double[9,5]", "redlang writes f64"),
        ("x=f31[9,5]", "it is none of bool, i8"),
    ],
)
def test_an_element_type_of_elsewhere_is_told_its_name(file, capsys, given, words):
    with pytest.raises(SystemExit):
        main(["explain", f"{file}:total", "--arg", given])
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_module_or_a_misspelled_file_is_told_its_path(tmp_path, capsys, monkeypatch):
    (tmp_path / "package").mkdir()
    for name in ("kernels.py", "package/inner.py"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    for given, meant in (
        ("kernels", "kernels.py"),
        ("package.inner", f"package{os.sep}inner.py"),
        ("kernel.py", "kernels.py"),
        (f"package{os.sep}iner.py", f"package{os.sep}inner.py"),
    ):
        assert main(["explain", f"{given}:robust"]) == 1
        assert capsys.readouterr().err.endswith(f"hint: did you mean {meant}:robust?\n")


@pytest.mark.parametrize("given", ["x", "x=f31[3,4]", "x=f32[a]", "x='text'"])
def test_an_argument_that_cannot_be_read_ends_the_command(file, capsys, given):
    with pytest.raises(SystemExit):
        main(["explain", f"{file}:total", "--arg", given])
    assert "--arg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{file}:absent", "choose one: {file}:total, {file}:wrong"),
        ("{file}", "names no kernel"),
        ("{file}", "{file}:total, {file}:wrong"),
        ("total", "FILE:KERNEL"),
        ("nowhere.py:total", "there is no file"),
        ("{file}:wrong", "k is no axis"),
    ],
)
def test_mistakes_of_the_command_line(file, capsys, place, message):
    assert main(["explain", place.format(file=file)]) == 1
    assert message.format(file=file) in capsys.readouterr().err


def test_an_unknown_workload_is_an_error(capsys):
    assert main(["bench", "--only", "nothing like it"]) == 1
    assert "softmax" in capsys.readouterr().err


def test_the_bench_stops_in_time_and_knows_its_peers(capsys):
    assert main(["bench", "--peers", "numpy,scipy"]) == 1
    assert "no workload on the CPU has a peer 'scipy'" in capsys.readouterr().err
    given = ["--only", "norm", "--rounds", "1", "--peers", "numpy", "--budget", "1"]
    assert main(["bench", *given]) == 0
    assert "numba" not in capsys.readouterr().out


def test_the_command_lists_itself(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("demo", "explain", "bench", "doctor"))


def test_the_doctor_says_whether_tests_can_run(monkeypatch):
    assert re.fullmatch(r"hypothesis [\d.]+, pytest [\d.]+", cli._testing())
    monkeypatch.setattr(cli, "_version", {"hypothesis": cli.ABSENT, "pytest": "9.0"}.get)
    assert cli._testing() == "hypothesis not installed (pip install 'redlang[test]')"
