"""An asynchronous kernel."""

import redlang


@redlang.kernel
async def later(x: "n") -> "n":
    return await x
