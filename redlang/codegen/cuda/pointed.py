"""Scalars that lie on the device: a kernel that reads them there instead of being handed numbers.

Nobody waits for such a value. The kernel's parameter becomes an address, and its first lines load
the number under the name that it has anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redlang.codegen.cuda.chained import Text, with_lines
from redlang.codegen.cuda.kernel_text import Number, Pointer
from redlang.errors import InternalError


def with_pointers(text: Text, dtypes: Mapping[str, str]) -> Text:
    """Return a kernel that takes the addresses of some scalars.

    Args:
        text: The kernel.
        dtypes: Element types of the scalars that lie on the device, by name.
    """
    head = re.search(rf"(?m)^def {re.escape(text.entry)}\((.*)\):\n", text.source)
    if head is None:
        raise InternalError(f"the text of {text.entry} defines no {text.entry}")
    variables = [part.strip() for part in head[1].split(",")]
    parameters: list[Any] = list(text.parameters)
    loads, lines = [], []
    for place, parameter in enumerate(text.parameters):
        if not isinstance(parameter, Number) or parameter.name not in dtypes:
            continue
        name = variables[place]
        parameters[place] = Pointer(parameter.name)
        variables[place] = f"{name}_at"
        dtype = dtypes[parameter.name]
        loads.append(f'{name}_load = t.load(t.Access("{dtype}", 1), hint="keep")\n')
        lines.append(f"    {name} = to_{parameter.code}({name}_load({name}_at))")
    if not lines:
        return text
    before, after = text.source[: head.start()], text.source[head.end() :]
    own = f"def {text.entry}({', '.join(variables)}):\n"
    source = "".join([before, *loads, "\n\n", own, after])
    return with_lines(replace(text, source=source, parameters=tuple(parameters)), lines)
