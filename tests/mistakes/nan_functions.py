"""Functions that pass over NaN."""

import redlang


@redlang.kernel
def kernel(x: "m n") -> ("m", "m", "m"):
    return nansum[n](x), nanmean[n](x), nanvar[n](x)
