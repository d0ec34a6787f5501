"""A budget of time and size for work whose cost nobody can foresee.

SymPy may expand, factor or integrate for minutes. Every call goes through `within`: what is too
large is not begun, and what takes too long is stopped. The size limit decides in practice, so that
the same kernel gets the same verdict on a slow and on a busy machine; the time limit is the safety
net. It needs no signals and works in any thread: the call runs in a thread of its own, which is
told to stop between two byte codes.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

SECONDS = 10.0
NODES = 4000


class OutOfBudgetError(Exception):
    """The work was too large or took too long."""


class _Stopped(BaseException):
    """Raised inside a thread whose time is up; not an `Exception`, so that nothing catches it."""


def within(work: Callable[[], Value], *, size: int = 0, seconds: float = SECONDS) -> Value:
    """Return `work()`, or give up.

    Args:
        work: What to do.
        size: How many nodes it starts from.
        seconds: How long it may take.

    Raises:
        OutOfBudgetError: It is larger than `NODES`, or took too long.
    """
    if size > NODES:
        raise OutOfBudgetError(f"{size} nodes, more than {NODES}")
    outcome: list[Value] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except _Stopped:
            pass
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="redlang-algebra", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        identity = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(_Stopped))
        raise OutOfBudgetError(f"more than {seconds:g} s")
    if failure:
        raise failure[0]
    return outcome[0]
