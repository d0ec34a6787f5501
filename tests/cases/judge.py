"""How a case is judged: the compiled kernel and the reference must give the stated value."""

from redlang.testing.compare import assert_close


def gives(kernel, arguments, expected, *, rtol=1e-6, atol=0.0, kinds=True, precision="double"):
    """Assert that `kernel(*arguments)` and its reference are `expected`, masks included.

    `precision="declared"` is for values that overflow in f32 and would not in double.
    """
    assert_close(kernel(*arguments), expected, rtol=rtol, atol=atol, kinds=kinds)
    reference = kernel.reference(*arguments, precision=precision)
    assert_close(reference, expected, rtol=rtol, atol=atol, kinds=kinds)


def agrees(kernel, arguments, *, rtol=1e-6, atol=0.0, kinds=True, precision="double"):
    """Assert that the compiled kernel gives what its reference gives, and return that."""
    actual = kernel(*arguments)
    reference = kernel.reference(*arguments, precision=precision)
    assert_close(actual, reference, rtol=rtol, atol=atol, kinds=kinds)
    return actual
