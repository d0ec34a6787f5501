"""Whether machine code waits for the kernels before it ahead of its loads."""

import pytest

from redlang.targets import toolchain
from redlang.targets.assembler import assemble

if not toolchain.is_installed():
    pytest.skip("the compiler for GPUs is not installed", allow_module_level=True)

SOURCE = """\
from redlang.targets import tiles as t
from redlang.targets.vocabulary import *

load = t.load(t.Access("f32", 4), hint="plain")
store = t.store(t.Access("f32", 4))
prefetch = t.prefetch(t.Access("f32", 4), 1)


def kernel(x, y):
    {lines}
"""
STORE = "store(y, True, loaded)"


@pytest.mark.parametrize("target", ["9.0a", "10.0"])
@pytest.mark.parametrize(
    ("lines", "right"),
    [
        (["prefetch(x, True)", "t.wait_for_earlier()", "loaded = load(x)", STORE], True),
        (["loaded = load(x)", "t.wait_for_earlier()", STORE], False),
        # Nothing says that it waits.
        (["loaded = load(x)", STORE], False),
    ],
)
def test_loads_are_found_where_they_are(lines, right, target):
    source = SOURCE.format(lines="\n    ".join(lines))
    ptx = toolchain.to_ptx(source, "kernel", ["i64", "i64"], target, max_threads=128)
    assert assemble(ptx, target).waits_first is right
