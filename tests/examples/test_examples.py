"""Every example runs, and what it prints as its largest difference is small."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("examples").glob("[0-9]*.py"))


def test_there_are_ten_examples():
    assert [path.name[:2] for path in EXAMPLES] == [f"{number:02}" for number in range(1, 11)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_right(path, capsys):
    difference = runpy.run_path(str(path))["main"]()
    assert "largest" in capsys.readouterr().out
    # f32 with sums of a few thousand terms; relative where the example says so.
    assert difference < 2e-4


NOTEBOOKS = sorted(Path(__file__).parents[2].joinpath("examples", "notebooks").glob("*.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_as_a_script(path, capsys):
    runpy.run_path(str(path))
    printed = capsys.readouterr().out
    for line in printed.splitlines():
        if line.startswith("largest difference:"):
            assert float(line.split()[-1]) < 1e-5
