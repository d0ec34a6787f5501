"""The library, written in the language itself.

Each name is a macro inside kernels, `std.softmax[n](s)`, and a function on arrays outside,
`std.softmax(x, axis=-1)`. Read the sources: they are the definitions.
"""

from redlang.std.attending import attention, attention_with_lse, causal, scores, weighted, window
from redlang.std.exponentials import cross_entropy, entropy, log_softmax, logsumexp, softmax
from redlang.std.norms import layer_norm, rms_norm
from redlang.std.quantisation import quantize, quantize_int8
from redlang.std.routing import moe_route
from redlang.std.statistics import covariance, mean, normalize, std, var

__all__ = [
    "attention",
    "attention_with_lse",
    "causal",
    "covariance",
    "cross_entropy",
    "entropy",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "mean",
    "moe_route",
    "normalize",
    "quantize",
    "quantize_int8",
    "rms_norm",
    "scores",
    "softmax",
    "std",
    "var",
    "weighted",
    "window",
]


def __dir__() -> list[str]:
    return __all__
