"""A few kernels from top to bottom, as text: each stage exactly as it prints.

`make golden` renews the files. They show what a change does to every stage; that the code in them
is right is tested elsewhere.
"""

from pathlib import Path

import pytest

import redlang
from tests.kernels import CORPUS

HERE = Path(__file__).parent
KERNELS = ("softmax", "variance", "attention")
STAGES = ("syntax", "program", "fuse", "plan", "loops", "cpu")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", KERNELS)
def test_stage_prints_as_before(name, stage, request):
    kernel = redlang.compile(CORPUS[name].text)
    text = kernel.source("cpu") if stage == "cpu" else kernel.explain(stage)
    path = HERE / name / f"{stage}.txt"
    if request.config.getoption("--renew-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
