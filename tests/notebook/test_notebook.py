from typing import Any

import numpy as np
import pytest

import redlang
from redlang.notebook import define, load_ipython_extension
from redlang.notebook.formulas import to_latex
from redlang.notebook.page import page
from redlang.notebook.picture import passes, roofline

CELL = """
def variance(x: "m n") -> "m":
    mu = mean[n](x)
    return mean[n]((x - mu) ** 2)

def deviation(x: "m n") -> "m":
    return mean[n](abs(x - mean[n](x)))
"""


@pytest.fixture
def shell():
    module = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    shell = module.InteractiveShell()
    load_ipython_extension(shell)
    return shell


def test_a_cell_defines_kernels():
    names: dict[str, Any] = {}
    kernels = define(CELL, "<cell>", names, fuse="auto")
    assert [kernel.__name__ for kernel in kernels] == ["variance", "deviation"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(names["variance"](x), x.var(axis=1), rtol=1e-6)


def test_the_magic_shows_what_became_of_the_kernels(shell, capsys):
    shell.run_cell_magic("redlang", "--stage program", CELL)
    assert "mu" in capsys.readouterr().out
    assert isinstance(shell.user_ns["variance"], redlang.Kernel)


def test_unknown_options_are_told(shell):
    with pytest.raises(redlang.RedlangError, match="no option --foo"):
        shell.run_cell_magic("redlang", "--foo", CELL)


def test_mistakes_are_reported_with_the_lines_of_the_cell(shell):
    with pytest.raises(redlang.RedlangError, match=r":3:\d+:"):
        shell.run_cell_magic("redlang", "", 'def f(x: "n") -> "n":\n    y = x\n    return z\n')


def test_explanations_are_shown_as_html(shell):
    names: dict[str, Any] = {}
    (variance, deviation) = define(CELL, "<cell 2>", names, fuse="auto")
    formatter = shell.display_formatter.formatters["text/html"]
    shown = formatter(variance)
    assert "fused" in shown
    assert "$" in shown
    assert "<svg" in shown
    assert "refuted" in page(deviation.explain()) or "undecided" in page(deviation.explain())


def test_plain_text_stays_text():
    assert page("a < b") == "<pre>a &lt; b</pre>"


GPU_PLAN = """plan of f for m = 4096, n = 4096 on NVIDIA H200
nest 0: on-chip, 17.0 µs predicted
  registers n up to 4096
  pass 1    over n: max.1
  pass 2    over n, on chip: sum.1
  roofline  15.6 µs by memory; predicted 17.0 µs, limited by memory
"""


def test_a_plan_is_drawn_with_its_passes_and_its_roof():
    names: dict[str, Any] = {}
    define(CELL, "<cell 4>", names, fuse="auto")
    plan = str(names["deviation"].explain("plan"))
    assert passes(plan).count(", on chip: ") == plan.count("  pass ") - 1 > 0
    assert "memory" in roofline(plan)
    assert "predicted" in roofline(plan)
    assert "stroke-dasharray" in roofline(plan)


def test_a_plan_of_a_gpu_is_drawn_too():
    assert passes(GPU_PLAN).count(", on chip: ") == 1
    drawn = roofline(GPU_PLAN)
    assert "memory 15.6 µs" in drawn
    assert "predicted 17 µs" in drawn
    roof = 210 * 15.6 / 17
    assert f"x1='{roof:.1f}'" in drawn


def test_a_plan_without_sweeps_or_times_has_no_pictures():
    assert passes("plan of f\n") == roofline("plan of f\n") == ""


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("x[m, n]", "x_{m, n}"),
        ("S0' = S1 * (c - c') + S0", r"S_{0}' = S_{1} \, \left(c - c'\right) + S_{0}"),
        ("c = running mean of x[m, n]", r"c = \text{running mean of } x_{m, n}"),
        ("exp(x - m) / z", r"\frac{\exp\left(x - m\right)}{z}"),
        ("(a + b) ** 2.0", r"\left(a + b\right)^{2}"),
        ("a - (b - c)", r"a - \left(b - c\right)"),
        ("sum.1.rest / size(n)", r"\frac{\mathrm{sum.1.rest}}{\left|n\right|}"),
        ("my_name", r"\mathrm{my\_name}"),
        ("no formula at all", None),
        ("x[", None),
    ],
)
def test_formulas_become_latex(text, latex):
    assert to_latex(text) == latex


def test_what_explanations_print_can_be_typeset():
    names: dict[str, Any] = {}
    define(CELL, "<cell 3>", names, fuse="auto")
    shown = page(names["variance"].explain("fuse"))
    assert shown.count("$") >= 8
    assert shown.count("{") == shown.count("}")
