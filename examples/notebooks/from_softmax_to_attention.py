# %% [markdown]
# # From softmax to attention
#
# A notebook in percent format: `jupytext --to ipynb` turns it into one, and it runs as a plain
# script. In a notebook, `%load_ext redlang.notebook` typesets what `explain()` returns.

# %%
import numpy as np

import redlang
from redlang import std

rng = np.random.default_rng(0)


# %% [markdown]
# ## Two reductions, one sweep
#
# The sum reads the maximum, so as written the data are read twice. The proof says that the sum can
# follow a maximum that still moves: multiply it by exp(c - c').


# %%
@redlang.kernel
def log_sum_exp(x: "m n") -> "m":
    """Log-sum-exp of each row."""
    top = max[n](x)
    return top + log(sum[n](exp(x - top)))


x = rng.normal(size=(64, 1000)).astype(np.float32)
print(log_sum_exp.explain("fuse"))
print("largest difference:", np.abs(log_sum_exp(x) - log_sum_exp.reference(x)).max())

# %% [markdown]
# ## One more sum, weighted by the same exponentials
#
# Now a value hangs on each element. Nothing new is needed: the weighted sum moves by the same
# factor, and both share one pass.


# %%
@redlang.kernel
def weighted_mean(s: "m n", v: "n e") -> "m e":
    """Mean of v, weighted by softmax(s)."""
    p = exp(s - max[n](s))
    return sum[n](p * v) / sum[n](p)


v = rng.normal(size=(1000, 8)).astype(np.float32)
print("sweeps:", len(weighted_mean.sweeps[0]))
print("largest difference:", np.abs(weighted_mean(x, v) - weighted_mean.reference(x, v)).max())

# %% [markdown]
# ## Scores that are computed where they are needed
#
# With the scores as a product of queries and keys this is attention. They are computed tile by tile
# inside the sweep over the keys, so that no array of scores exists.


# %%
@redlang.kernel
def attention(q: "m d", k: "n d", v: "n e") -> ("m e", "m"):
    """Causal attention, and the log-sum-exp of its scores."""
    s = where(std.causal[m, n](), sum[d](q * k) * rsqrt(size(d)))
    return std.weighted[n](s, v), std.logsumexp[n](s)


q, k, v = rng.normal(size=(3, 256, 64)).astype(np.float32)
o, lse = attention(q, k, v)
right, _ = attention.reference(q, k, v)
print("largest difference:", np.abs(o - right).max())
print(attention.explain("plan"))
