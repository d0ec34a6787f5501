"""Short forms of element functions: the errors that they state, by the same operations in f32."""

import numpy as np

from redlang.targets.ptx import elementary

F = np.float32


def polynomial(z, parts):
    total = np.full_like(z, F(parts[-1]))
    for part in reversed(parts[:-1]):
        # One rounding, as a fused operation has.
        total = (total.astype(np.float64) * z + F(part)).astype(F)
    return total


def test_short_tanh_is_good_to_seventeen_bits():
    end = F(elementary._TANH_END)
    x = np.concatenate([np.geomspace(1e-30, 1e-3, 10001), np.linspace(1e-3, 20, 200001)]).astype(F)
    near = np.minimum(x, end)
    z = near * near
    above = polynomial(z, elementary._TANH_ABOVE)
    below = polynomial(z, elementary._TANH_BELOW)
    found = (near * above) * (F(1) / below)
    exact = np.tanh(x.astype(np.float64))
    assert np.abs(found / exact - 1).max() < 2.0**-17
    # Beyond the end, too.
    assert abs(float(found[-1]) - 1) < 2.0**-17
