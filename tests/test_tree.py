"""What holds of the files themselves: their size, and words that do not belong in them."""

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(ROOT.glob("redlang/**/*.py"))
MOST_LINES = 450

# The layers know reductions; what people compute with them has its place in these.
WORKLOADS_LIVE_IN = ("std", "bench", "cli.py")
WORKLOADS = re.compile(
    r"softmax|attention|(layer|rms|batch)_?norm|cross_?entropy|log_?sum_?exp|gelu|transformer|moe_",
    re.IGNORECASE,
)

# Paths of one machine, and talk of the work on this code. A class of one letter, here and there:
# this file is searched too.
OUTSIDE = re.compile(r"/wor[k]/|/roo[t]/|/hom[e]/|/opt/pyp[i]|workplac[e]|\bissue #?\d")


def name_of(path):
    return str(path.relative_to(ROOT))


def tracked():
    """Return the files under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def test_no_module_is_too_long():
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_files_speak_of_the_code_alone():
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if OUTSIDE.search(line)
    ]
    assert found == []


def identifiers(path):
    """Return the names in a module, its own among them; those in texts are not."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME} | {path.stem}


def test_layers_name_no_workload():
    layers = [p for p in MODULES if p.relative_to(ROOT).parts[1] not in WORKLOADS_LIVE_IN]
    named = {name_of(p): set(filter(WORKLOADS.search, identifiers(p))) for p in layers}
    assert {name: found for name, found in named.items() if found} == {}
