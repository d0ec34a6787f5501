"""Which exponents let a power share the sweep of what it reads, as the language reference says."""

import pytest

import redlang


def sweeps(power, reads="mean[n](x)"):
    kernel = redlang.compile(
        f'def f(x: "m n", p: int = 2) -> "m":\n    u = {reads}\n    return sum[n]({power})'
    )
    return len(kernel.sweeps[0])


@pytest.mark.parametrize("power", ["(x - u) ** 1", "(x - u) ** 7", "(x * u) ** 8"])
def test_literal_whole_exponents_fuse(power):
    assert sweeps(power) == 1


@pytest.mark.parametrize("exponent", ["0.5", "3"])
def test_exponentials_fuse(exponent):
    assert sweeps(f"exp(x - u) ** {exponent}", "max[n](x)") == 1


@pytest.mark.parametrize(
    "power", ["(x - u) ** 8", "(x * u) ** 9", "(x - u) ** 1.5", "(x - u) ** p", "(x * u) ** p"]
)
def test_other_exponents_take_a_further_sweep(power):
    assert sweeps(power) == 2
