"""The fuzzer finds nothing wrong in a few cascades, and finds what is planted."""

import numpy as np
import pytest

from redlang.algebra.verdicts import Fused, Proof
from redlang.ir.run_loops import run_loops
from redlang.testing import fuzz

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("seed", range(40))
def test_generated_cascades_agree_in_every_form(seed):
    assert fuzz.examine(seed, compile=seed % 20 == 0) == []


def test_a_form_that_is_off_is_reported(monkeypatch):
    honest = run_loops

    def off(*arguments):
        return tuple(np.asarray(r) + 1 for r in honest(*arguments))

    monkeypatch.setattr(fuzz, "run_loops", off)
    # In some cascades no row is finite, so that nothing is promised.
    faults = [fault for seed in range(8) for fault in fuzz.examine(seed)]
    assert len(faults) > 4
    fault = faults[0]
    assert f"seed {fault.seed}: Plan(" in str(fault)
    assert "def cascade(" in str(fault)


def test_an_error_is_a_fault(monkeypatch):
    monkeypatch.setattr(fuzz, "fuse", lambda _: 1 / 0)
    (fault,) = fuzz.examine(0)
    assert fault.who == "an error"
    assert "ZeroDivisionError" in fault.problem


def test_a_stage_without_a_proof_is_reported():
    stage = ("s", ("l",), (), (), "", "")
    bare = Fused(*stage, Proof(""))
    proved = Fused(*stage, Proof("it distributes", method="law of the reduction"))
    assert fuzz.unproved([bare, proved]) == ["s"]


def test_the_command_counts_and_fails(monkeypatch, capsys):
    assert fuzz.main(["--count", "4", "--jobs", "1", "--every", "100"]) == 0
    assert "4 cascades, 0 wrong" in capsys.readouterr().out
