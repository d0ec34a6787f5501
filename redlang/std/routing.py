"""Routing of tokens to experts."""

from redlang.kernel import function
from redlang.std.arrays import on_arrays
from redlang.std.exponentials import finite_top, nonzero


@on_arrays(logits="... e", returns="... j, i64[... j]", literals="k renormalize")
@function(axes="e j", integers="k")
def moe_route(logits, k, renormalize=True):
    """Return the weights and indices of the k likeliest experts, largest first, along a new axis j.

    Weights are softmax over all experts e and, with `renormalize`, scaled to sum 1 over the chosen
    ones (with k = 1 that makes the weight exactly 1). Equal logits rank by index. Indices are
    distinct, whatever the logits are: a row whose logits hold NaN or +inf is spread evenly, 1/k
    each. Slots beyond the visible experts have index -1 and weight 0.
    """
    top = finite_top(max[e](logits))
    total = sum[e](exp(logits - top))
    chosen, expert = topk[e:j](logits, k)
    p = exp(chosen - top)
    whole = where(renormalize, sum[j](p), total)
    weight = where(isnan(whole), 1 / k, p / nonzero(whole))
    return where(expert < 0, 0, weight), expert
