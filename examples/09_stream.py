"""Data that arrives in pieces: the incremental form as an object.

    entropy[m] of softmax over n of x[m, n], with n in chunks          x: f32[M, N]

`kernel.fold(axis)` holds the state that redlang derived. Chunks may be folded in different
processes and merged, in any cut: the merge is associative and the empty state is neutral.
"""

import pickle

import numpy as np

import redlang
from redlang import std


@redlang.kernel
def entropy(x: "m n") -> "m":
    """The entropy of softmax over n, in nats."""
    return std.entropy[n](x)


def reference(x):
    """The same with NumPy, on the whole array."""
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return -(p * np.log(p)).sum(axis=1)


def main():
    """Fold two halves apart, in unequal chunks, send one over, merge."""
    x = np.random.default_rng(9).normal(size=(16, 10_000)).astype(np.float32)
    first, second = entropy.fold("n"), entropy.fold("n")
    for chunk in np.split(x[:, :7000], [10, 4000], axis=1):
        first.update(chunk)
    second.update(x[:, 7000:])
    arrived = pickle.loads(pickle.dumps(second))
    difference = np.abs(first.merge(arrived).result() - reference(x.astype(np.float64))).max()
    print(f"largest difference: {difference:.1e}")
    print(entropy.explain("plan"))
    return difference


if __name__ == "__main__":
    main()
