"""Small pieces to test the algebra on: a builder, leaves, and the view of a sweep over n."""

from redlang.algebra.operators import Sign
from redlang.algebra.reading import Reading
from redlang.algebra.sharing import Pool
from redlang.algebra.signs import Signs
from redlang.algebra.terms import View
from redlang.ir.build import Builder
from redlang.ir.program import Ref
from redlang.ir.types import BOOL, F32, Type

B = Builder(("m", "n"))
x, y, g = (Ref(name, Type(F32, ("m", "n"))) for name in ("x", "y", "g"))
k = Ref("k", Type(BOOL, ("n",)))
u, v, z = (Ref(name, Type(F32, ("m",))) for name in ("u", "v", "z"))
c = Ref("c", Type(F32, ("m",)))


def signs(**known):
    """Return signs with facts about names."""
    made = Signs()
    made._names.update({name: Sign[sign] for name, sign in known.items()})
    return made


def view(**known):
    """Return the view of a sweep over n that carries u, v and z."""
    pool = Pool()
    return View(("n",), ("u", "v", "z"), B, pool, Reading(signs(**known)))
