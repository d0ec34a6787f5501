"""Attention, and the masks that go with it.

Masks are bottom-right aligned: the last query sees the last key. A query that sees no key, or only
scores of -inf, gives 0 and a log-sum-exp of -inf; what stands behind a mask is never read, NaN
included. The log-sum-exp is natural.
"""

from math import nan

from redlang.kernel import function
from redlang.std.arrays import on_arrays
from redlang.std.exponentials import finite_top, nonzero


@function(axes="m n")
def causal():
    """Return whether query m sees key n: its own position and everything before."""
    return n <= m + (size(n) - size(m))


@function(axes="m n")
def window(left=-1, right=-1):
    """Return whether key n is at most `left` before and `right` after query m's position.

    Both ends are included, so left=1, right=0 is a query's own key and one before. A negative
    number sets no bound on its side.
    """
    offset = n - (m + (size(n) - size(m)))
    return ((left < 0) | (offset >= -left)) & ((right < 0) | (offset <= right))


@function(axes="n")
def weighted(s, v):
    """Return v averaged over n with the weights softmax(s)."""
    p = exp(s - finite_top(max[n](s)))
    return sum[n](p * v) / nonzero(sum[n](p))


@function(axes="m n d")
def scores(q, k, scale=nan, causal=False, left=-1, right=-1):
    """Return q·k (summed over d) times scale, absent where query m does not see key n.

    A scale of nan stands for 1/sqrt(size(d)). `causal`, `left` and `right` mask as `std.causal` and
    `std.window` do.
    """
    s = sum[d](q * k) * where(isnan(scale), rsqrt(size(d)), scale)
    behind = n <= m + (size(n) - size(m))
    return where((~causal | behind) & window[m, n](left, right), s)


@on_arrays(q="... m d", k="... n d", v="... n e", returns="... m e", literals="causal", shared=True)
@function(axes="m n d")
def attention(q, k, v, scale=nan, causal=False, left=-1, right=-1):
    """Return v averaged over n with the weights softmax of `scores`.

    Sources: arXiv 1706.03762; in one pass, arXiv 2205.14135.
    """
    return weighted[n](scores[m, n, d](q, k, scale, causal, left, right), v)


@on_arrays(
    q="... m d",
    k="... n d",
    v="... n e",
    returns="... m e, wide[... m]",
    literals="causal",
    shared=True,
)
@function(axes="m n d")
def attention_with_lse(q, k, v, scale=nan, causal=False, left=-1, right=-1):
    """Return attention, and the natural log of the sum of exp(score) over n.

    Two results over different keys merge by their log-sum-exp; one that saw nothing has -inf there
    and weighs nothing.
    """
    s = scores[m, n, d](q, k, scale, causal, left, right)
    top = finite_top(max[n](s))
    p = exp(s - top)
    total = sum[n](p)
    return sum[n](p * v) / nonzero(total), top + log(total)
