"""Attention, causal, with grouped heads: everything so far in six lines.

    s[m, n] = q[m] . k[n] / sqrt(D),  absent where n > m
    o[m]    = sum over n of softmax_n(s)[m, n] v[n]

    q: f32[B, (G R), M, D], k: f32[B, G, N, D], v: f32[B, G, N, E]  ->  o: f32[B, (G R), M, E]

`(g r)` splits the heads of q into groups that share a head of k and v. One sweep over n carries the
running maximum, the sum of weights and the weighted values: the scores never exist as an array.
"""

import numpy as np

import redlang


@redlang.kernel
def attention(q: "b (g r) m d", k: "b g n d", v: "b g n e") -> "b (g r) m e":
    """Causal softmax attention with grouped queries."""
    s = sum[d](q * k) * rsqrt(size(d))
    s = where(n <= m, s)
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)


def reference(q, k, v):
    """The same with NumPy, in float64, with the scores as an array."""
    repeat = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), repeat, axis=1) for x in (k, v))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)


def main():
    """Run the kernel and print how far it is from NumPy."""
    rng = np.random.default_rng(10)
    q = rng.normal(size=(1, 8, 512, 64)).astype(np.float32)
    k, v = rng.normal(size=(2, 1, 2, 512, 64)).astype(np.float32)
    difference = np.abs(attention(q, k, v) - reference(q, k, v)).max()
    print(f"largest difference: {difference:.1e}")
    print(f"sweeps over the keys: {len(attention.sweeps[0])}")
    print(attention.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
