"""What is shown of measurements: tables, bars, and how the command reaches them."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from redlang.bench import attention, gpu
from redlang.bench.attention import PROBLEMS, Problem
from redlang.bench.picture import Bars, bars, write
from redlang.cli import main
from redlang.errors import RedlangError
from redlang.runtime import checkup
from redlang.targets import assembler, toolchain

GROUPS = [
    Bars("softmax <f16>", {"redlang": 10.0, "torch": 40.0}, 8.0),
    Bars("sum", {"redlang": 2.5}),
]


def test_bars_are_as_long_as_their_times():
    lines = bars(GROUPS).splitlines()
    assert [line.count("█") for line in lines[1:3]] == [10, 40]
    assert lines[2].endswith("40.0 µs")
    assert lines[3].index("▏") - lines[1].index("█") == 8


def test_a_picture_is_well_formed(tmp_path):
    write(tmp_path / "a.svg", "one & all", GROUPS)
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text(encoding="utf-8"))
    widths = [float(r.get("width", 0)) for r in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[2:] == [130.0, 520.0, 520.0]
    write(tmp_path / "a.txt", "one & all", GROUPS)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8").startswith("one & all\n\nsoftmax")


def test_pixels_are_refused(tmp_path):
    with pytest.raises(RedlangError, match="svg"):
        write(tmp_path / "a.png", "", GROUPS)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_kernels_are_attention(problem):
    shared = problem.shared and 2
    small = Problem(2, 4, 7, 5, problem.causal, shared, problem.queries and 3)
    rng = np.random.default_rng(0)
    shape = (2, shared or 4, 7, 5)
    k, v = rng.normal(size=shape), rng.normal(size=shape)
    q = rng.normal(size=(2, 4, small.queries or 7, 5))
    torch = pytest.importorskip("torch")
    expected = attention.written(small.causal, *map(torch.from_numpy, (q, k, v)))
    np.testing.assert_allclose(small.kernel(q, k, v), expected.numpy(), rtol=1e-10)


def test_operations_are_counted_where_elements_are_seen():
    assert Problem(1, 2, 3, 8).flops == 4 * 2 * 9 * 8
    assert Problem(1, 2, 3, 8, causal=True).flops == 4 * 2 * 6 * 8
    assert Problem(1, 2, 3, 8, queries=1).flops == 4 * 2 * 3 * 8


def test_the_table_of_attention_shows_ratios():
    line = attention.Line("B1", 4e6, {"redlang": 2.0, "cudnn": 3.0}, 1e-3)
    broken = attention.Line("B2", 4e6, {}, problems={"redlang": "no"})
    shown = attention.table([line, broken])
    assert "geometric mean of cudnn over redlang: 1.50" in shown
    assert shown.splitlines()[2].endswith("no")


@pytest.mark.parametrize(
    ("arguments", "module", "given"),
    [
        (["attention", "--only", "d64"], attention, ["--only", "d64"]),
        (["--backend", "cuda", "--picture", "a.svg"], gpu, ["--picture", "a.svg"]),
    ],
)
def test_the_command_reaches_the_gpu(monkeypatch, arguments, module, given):
    seen = []

    def run(arguments):
        seen.append(arguments)
        return 0

    monkeypatch.setattr(module, "main", run)
    assert main(["bench", *arguments]) == 0
    assert seen == [given]


def test_without_a_gpu_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setattr("redlang.runtime.driver.driver", lambda: None)
    assert main(["bench", "attention"]) == 1
    assert "no GPU" in capsys.readouterr().err


def test_the_checkup_names_what_is_missing(monkeypatch):
    monkeypatch.setattr(checkup, "driver", lambda: None)
    monkeypatch.setattr(checkup, "probe", lambda number: None)
    monkeypatch.setattr(toolchain, "is_installed", lambda: False)
    (finding,) = checkup.gpu_findings()
    assert finding.fine
    assert "pip install" in finding.text


def test_a_compiler_that_fails_is_no_fine_finding(monkeypatch):
    if not toolchain.is_installed():
        pytest.skip("the compiler for GPUs is not installed")
    monkeypatch.setattr(checkup, "driver", lambda: None)
    monkeypatch.setattr(checkup, "SOURCE", "def checkup(x):\n    nothing()\n")
    where, failed, last = checkup.gpu_findings()
    assert where.text.endswith(f"ptxas is {assembler.find_ptxas()}")
    assert not failed.fine
    assert "cannot run" in last.text
