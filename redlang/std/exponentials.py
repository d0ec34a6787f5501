"""Softmax and what is made of it.

All of them subtract the largest visible element first (Milakov and Gimelshein 2018, arXiv
1805.02867, for the single pass). Where that is -inf, because nothing is visible or everything is
-inf, they subtract 0 instead: the weights are 0 and the log-sum-exp is -inf. A NaN or a +inf among
the visible elements makes the row's results NaN; only the log-sum-exp of +inf is +inf.
"""

from redlang.kernel import function
from redlang.std.arrays import on_arrays


@function
def finite_top(top):
    """Return a maximum that is safe to subtract: 0 in place of -inf."""
    return where(top == -inf, 0, top)


@function
def nonzero(total):
    """Return a sum of weights that is safe to divide by: 1 in place of 0."""
    return where(total == 0, 1, total)


@on_arrays(x="... l", returns="... l")
@function(axes="l")
def softmax(x):
    """Return exp(x) along l, scaled to sum 1; all 0 where every visible element is -inf."""
    p = exp(x - finite_top(max[l](x)))
    return p / nonzero(sum[l](p))


@on_arrays(x="... l", returns="... l")
@function(axes="l")
def log_softmax(x):
    """Return the natural log of softmax; all -inf where every visible element is -inf."""
    y = x - finite_top(max[l](x))
    return y - log(nonzero(sum[l](exp(y))))


@on_arrays(x="... l", returns="...")
@function(axes="l")
def logsumexp(x):
    """Return the natural log of the sum of exp(x) along l.

    -inf over nothing or only -inf; +inf where an element is +inf and none is NaN.
    """
    largest = max[l](x)
    top = finite_top(largest)
    return where(largest == inf, inf, top + log(sum[l](exp(x - top))))


@on_arrays(x="... l", label="...", returns="...")
@function(axes="l", integers="label ignore_index")
def cross_entropy(x, label, ignore_index=-100):
    """Return minus the log-probability that softmax over l gives to the class `label`.

    One value a row. Labels are integers. A row whose label is `ignore_index` gives 0; another label
    outside [0, size(l)) gives NaN; a label whose logit is -inf gives +inf.
    """
    y = x - finite_top(max[l](x))
    loss = log(nonzero(sum[l](exp(y)))) - sum[l](where(l == label, y))
    known = (label >= 0) & (label < size(l))
    return where(label == ignore_index, 0, where(known, loss, nan))


@on_arrays(x="... l", returns="...")
@function(axes="l")
def entropy(x):
    """Return the entropy in nats of softmax(x) along l.

    Elements of -inf have weight 0 and add nothing; over nothing or only -inf the entropy is 0.
    """
    y = x - finite_top(max[l](x))
    p = exp(y)
    total = nonzero(sum[l](p))
    return log(total) - sum[l](where(x != -inf, p * y)) / total
