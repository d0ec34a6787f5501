"""What all tests share."""

import os
import shutil
import tempfile
import zlib

import numpy as np
import pytest
from hypothesis import settings

# A busy machine is no mistake: how long one example takes is not judged. Where changes are judged,
# the examples are the same in every run; `make fuzz` looks for new ones.
settings.register_profile("default", deadline=None)
settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady" if os.environ.get("CI") else "default")


def pytest_addoption(parser):
    parser.addoption(
        "--renew-golden", action="store_true", help="write the golden files instead of comparing"
    )


def pytest_configure(config):
    """Give one run, all its processes together, a cache of its own: what is compiled is compiled
    by the code that is tested, once."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = tempfile.mkdtemp(prefix="redlang-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["REDLANG_CACHE_DIR"] = folder


@pytest.fixture
def rng(request):
    """A generator of random numbers, the same in every run of a test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
