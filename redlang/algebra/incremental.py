"""From proved stages to the incremental form of their sweep.

An `Emitter` collects the states of one sweep. Equal states are kept once, whoever asks for them:
the maximum of a softmax is its own result and the reference point of the sums that follow. Steps
are appended in an order in which each reads only what stands before it; reference points are
renewed before the sums that are taken at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from redlang.algebra.monotone import NotMonotone, hoist
from redlang.algebra.points import Point, first_powers, key_of, moves, of_side, weighted_key
from redlang.algebra.sharing import canonical, conjuncts
from redlang.algebra.signs import Signs
from redlang.algebra.states import identity, state_dtypes
from redlang.algebra.terms import Steady, View
from redlang.algebra.transport import Centre, Maximum, Phi, Reference, axes_of, move, value
from redlang.ir import walk
from redlang.ir.build import literal
from redlang.ir.incremental import Combine, Commit, Each, Let, Partial, State, Step
from redlang.ir.program import Expr, Monoid, Ref
from redlang.ir.types import F32, F64, Type

LARGEST = {F32: 3.4028234663852886e38, F64: 1.7976931348623157e308}
"""The largest finite number of each floating compute type."""


class Emitter:
    """The states and steps of one sweep, as they are asked for."""

    def __init__(
        self,
        view: View,
        signs: Signs,
        centres: Sequence[Centre] = (),
        taken: set[str] | None = None,
    ) -> None:
        """Begin a sweep.

        Args:
            view: The swept axes.
            signs: Known signs.
            centres: Reference points of the sums to come, so that what they keep is kept once.
            taken: Names that are not free; those of this sweep are added.
        """
        self.signs = signs
        self.build = view.build
        self.pool = view.pool
        self.view = view
        self.states: list[State] = []
        self.update: list[Step] = []
        self.commits: list[Commit] = []
        self.merge: list[Combine | Let] = []
        self.merge_commits: list[Commit] = []
        self.gathered: dict[str, list[Each | Partial | Let]] = {}
        self._plain: dict[tuple[object, ...], tuple[Ref, ...]] = {}
        self._sums: dict[Phi, Ref] = {}
        self._declared: dict[Phi, Ref] = {}
        self._points: dict[Reference, Point] = {}
        self._names = taken if taken is not None else set()
        self._centred = {weighted_key(centre): centre for centre in centres if centre.weight}

    def plain(
        self,
        name: str,
        op: str,
        values: Sequence[Expr],
        condition: Expr | None,
        *,
        types: Sequence[Type] | None = None,
        k: int | None = None,
        slots: str | None = None,
        monoid: Monoid | None = None,
    ) -> tuple[Ref, ...]:
        """Return the states of a reduction that needs no transport.

        Args:
            name: What the states are called after.
            op: The reduction, or `mantissa`.
            values: Its operands.
            condition: Elements that take part.
            types: The states' types, if they do not follow from the operand's.
            k: Slots of a top-k list.
            slots: The axis that counts them in the end; a list has one.
            monoid: A user's monoid.
        """
        values = [self.pool.intern(v) for v in values]
        condition = canonical([condition], self.build, self.pool)
        key = (*self._plain_key(op, values, condition), k, slots, id(monoid))
        if key in self._plain:
            return self._plain[key]
        axes = self.free_axes([*values, *conjuncts(condition)])
        types = types or [Type(dtype, axes) for dtype in state_dtypes(op, values)]
        if monoid is not None:
            initials = list(monoid.init)
        else:
            initials = [identity(op, type_.dtype, i) for i, type_ in enumerate(types)]
        suffixes = {"argmax": ("", ".index"), "argmin": ("", ".index"), "topk": ("", ".index")}
        suffixes["mantissa"] = (".mantissa", ".exponent")
        endings = suffixes.get(op) or (("",) if len(types) == 1 else _numbered(len(types)))
        names = [self.fresh(f"{name}.{op}{ending}") for ending in endings]
        for own, type_, initial in zip(names, types, initials, strict=True):
            self.states.append(State(own, type_, initial, k))
        tile, new, joined = ([f"{n}.{e}" for n in names] for e in ("tile", "next", "joined"))
        fixed = (tuple(types), k, monoid)
        self.update.append(Partial(tuple(tile), op, tuple(values), condition, *fixed))
        self.update.append(Combine(tuple(new), op, tuple(names), tuple(tile), *fixed))
        self.commits.extend(map(Commit, names, new))
        left, right = ([f"{side}.{n}" for n in names] for side in "ab")
        self.merge.append(Combine(tuple(joined), op, tuple(left), tuple(right), *fixed))
        self.merge_commits.extend(map(Commit, names, joined))
        refs = tuple(Ref(own, type_) for own, type_ in zip(names, types, strict=True))
        self._plain[key] = refs
        return refs

    def _plain_key(
        self, op: str, values: Sequence[Expr], condition: Expr | None
    ) -> tuple[object, ...]:
        interned = tuple(id(self.pool.intern(value)) for value in values)
        return (op, interned, id(canonical([condition], self.build, self.pool)))

    def sum(self, phi: Phi, name: str) -> Expr:
        """Return the sum of phi as an expression over states.

        The sum of what some stage keeps about a centre is not kept beside it: it is c * n + r. A
        count of every element that nobody keeps is the extent, in the end.
        """
        if phi.counts and phi.condition is None and phi not in self._sums:
            first, *others = map(self.build.size, self.swept())
            count: Expr = first
            for size in others:
                count = self.build.mul(count, size)
            return count
        centre = self._centred.get(key_of(phi)) if not phi.centres else None
        if centre is None or centre.weight is None:
            return self.state(phi, name)
        rest, weight = self.state(first_powers(centre), name), self.state(centre.weight, name)
        scaled = self.build.mul(self.build.convert(weight, phi.dtype), self.point(centre).kept)
        return self.build.add(scaled, rest)

    def state(self, phi: Phi, name: str) -> Ref:
        """Return the state that holds the sum of phi at its reference points."""
        if phi in self._sums:
            return self._sums[phi]
        if phi.counts:
            truth = literal(True)
            (ref,) = self.plain(name, "count", [truth], phi.condition)
        elif phi.maximum is None and not any(centre.moves for centre, _ in phi.centres):
            at = self._unmoved
            (ref,) = self.plain(name, "sum", [value(phi, at, self.build)], phi.condition)
        else:
            for reference in self._references(phi):
                self.point(reference, name)
            if phi in self._sums:
                return self._sums[phi]
            ref = self._declare(phi, name)
            self._transport(phi, ref, name)
        self._sums[phi] = ref
        return ref

    def point(self, reference: Reference, name: str = "") -> Point:
        """Return a reference point, with the steps that renew it emitted."""
        if reference not in self._points:
            if isinstance(reference, Maximum):
                self._points[reference] = self._maximum(reference, name)
            elif reference.top is not None:
                self._points[reference] = self._at_maximum(reference.top, name)
            else:
                self._points[reference] = self._centre(reference, name)
                self.state(first_powers(reference), name)
        return self._points[reference]

    def centres(self) -> list[Point]:
        """Return the centres emitted so far."""
        return [p for reference, p in self._points.items() if isinstance(reference, Centre)]

    def seen(self, condition: Expr | None, name: str) -> Expr:
        """Return whether any element took part under `condition`, from states."""
        if condition is None:
            tests = [self.build.apply("gt", self.build.size(a), 0) for a in self.swept()]
            joined = self.build.conjunction(tests)
            assert joined is not None
            return joined
        for phi, ref in self._sums.items():
            if phi.counts and phi.condition is condition:
                return self.build.apply("gt", ref, 0)
        (ref,) = self.plain(name, "any", [literal(True)], condition)
        return ref

    @property
    def whole_counts(self) -> frozenset[str]:
        """Return the states that count every element, so that they end at the axes' extent."""
        return frozenset(
            ref.name for phi, ref in self._sums.items() if phi.counts and phi.condition is None
        )

    def free_axes(self, exprs: Sequence[Expr]) -> tuple[str, ...]:
        """Return the axes of expressions, without the swept ones."""
        axes = self.build.union(expr.type.axes for expr in exprs)
        return tuple(axis for axis in axes if axis not in self.view.axes)

    def fresh(self, name: str) -> str:
        """Return `name`, numbered if it is taken."""
        candidate, number = name, 1
        while candidate in self._names:
            number += 1
            candidate = f"{name}{number}"
        self._names.add(candidate)
        return candidate

    def swept(self) -> tuple[str, ...]:
        """Return the swept axes in the kernel's order."""
        return tuple(axis for axis in self.build.order if axis in self.view.axes)

    def _unmoved(self, reference: Reference) -> Expr:
        raise AssertionError(f"{reference} is no reference point of a plain sum")

    def _references(self, phi: Phi) -> list[Reference]:
        moving: list[Reference] = [centre for centre, _ in phi.centres if centre.moves]
        return [phi.maximum, *moving] if phi.maximum is not None else moving

    def _declare(self, phi: Phi, name: str) -> Ref:
        """Return the state of phi, of which the steps may come later."""
        if phi not in self._declared:
            axes = axes_of(phi, self.build)
            type_ = Type(phi.dtype, tuple(a for a in axes if a not in self.view.axes))
            own = self.fresh(f"{name}.sum{sum(k for _, k in phi.centres) or ''}")
            self.states.append(State(own, type_, identity("sum", phi.dtype)))
            self._declared[phi] = Ref(own, type_)
        return self._declared[phi]

    def _transport(self, phi: Phi, ref: Ref, name: str) -> None:
        """Emit update and merge of a sum at reference points."""
        build, points = self.build, self.point
        own, types = ref.name, (ref.type,)

        def old(other: Phi) -> Expr:
            return self.state(other, name) if other != phi else ref

        change = moves(points, "change")
        moved = move(phi, change, change, old, build)
        tile = value(phi, lambda r: points(r).renewed, build)
        self.let(f"{own}.moved", moved)
        self.update.append(
            Partial((f"{own}.tile",), "sum", (self.pool.intern(tile),), phi.condition, types)
        )
        self.update.append(
            Combine((f"{own}.next",), "sum", (f"{own}.moved",), (f"{own}.tile",), types)
        )
        self.commits.append(Commit(own, f"{own}.next"))
        for side, which in (("a", "change_left"), ("b", "change_right")):
            change = moves(points, which)
            moved = move(phi, change, change, lambda p, s=side: of_side(s, old(p)), build)  # type: ignore[misc]
            self.merge.append(Let(f"{own}.{side}", moved))
        self.merge.append(Combine((f"{own}.joined",), "sum", (f"{own}.a",), (f"{own}.b",), types))
        self.merge_commits.append(Commit(own, f"{own}.joined"))

    def _maximum(self, reference: Maximum, name: str) -> Point:
        """Emit a running maximum, kept finite, and how an exponential decays when it grows.

        Clipping to the finite range makes the empty state harmless: exp(lowest - c') is 0 or, from
        the lowest number itself, 1; nothing is ever inf - inf.
        """
        build = self.build
        state, psi = self._extreme(reference, name)

        def point(ref: Ref) -> Expr:
            return self._clipped(psi(ref))

        own = self.fresh(f"{name}.point")
        kept = point(state)
        renewed = self.let(own, point(Ref(f"{state.name}.next", state.type)))
        change = self.let(f"{own}.decay", build.apply(reference.base, build.sub(kept, renewed)))
        joined = self.let(
            f"{own}.joined", point(Ref(f"{state.name}.joined", state.type)), merging=True
        )
        changes = []
        for side in "ab":
            exponent = build.sub(point(of_side(side, state)), joined)
            decay = build.apply(reference.base, exponent)
            changes.append(self.let(f"{own}.{side}", decay, merging=True))
        return Point(kept, renewed, change, joined, *changes)

    def _at_maximum(self, reference: Maximum, name: str) -> Point:
        """Emit how far a running maximum moves, for shifts that stand there.

        From the lowest number, where nothing was seen, it would move out of range.
        """
        build, at = self.build, self.point(reference, name)
        assert isinstance(at.renewed, Ref)
        assert isinstance(at.joined, Ref)
        own = at.renewed.name
        change = self.let(f"{own}.step", self._clipped(build.sub(at.kept, at.renewed)))
        sides = []
        for side in "ab":
            place = walk.substitute(
                at.kept, {s.name: of_side(side, Ref(s.name, s.type)) for s in self.states}
            )
            step = self._clipped(build.sub(place, at.joined))
            sides.append(self.let(f"{own}.{side}.step", step, merging=True))
        return Point(at.kept, at.renewed, change, at.joined, *sides)

    def _extreme(self, reference: Maximum, name: str) -> tuple[Ref, Callable[[Expr], Expr]]:
        """Return the state that holds a running maximum, and what makes the maximum of it.

        Where the exponent is a monotone function of something of which a stage keeps the maximum
        or minimum anyway, as in exp((x - m) * scale), that state serves.
        """
        try:
            hoisted = hoist(reference.element, Steady(self.view), self.signs)
        except NotMonotone:
            hoisted = None
        if hoisted is not None:
            op = "max" if hoisted.rising else "min"
            key = self._plain_key(op, [hoisted.element], reference.condition)
            kept = self._plain.get((*key, None, None, id(None)))
            if kept is not None:
                return kept[0], hoisted.psi
        (state,) = self.plain(name, "max", [reference.element], reference.condition)
        return state, lambda value: value

    def _clipped(self, expr: Expr) -> Expr:
        limit = LARGEST[expr.type.dtype]
        bound = literal(limit, expr.type.dtype)
        return self.build.apply("clip", expr, literal(-limit, expr.type.dtype), bound)

    def _centre(self, reference: Centre, name: str) -> Point:
        """Emit a running mean c' = c + (sum of w (y - c)) / (sum of w).

        c only has to be near the data: it is finite always, renewed wherever the mean is, and
        every sum is taken at the rounded value of c that is stored. Before anything was seen the
        sums are 0 and may be moved by any distance, so by 0.
        """
        build, points = self.build, self.point
        assert reference.weight is not None
        weight, first = reference.weight, first_powers(reference)
        total = self.state(weight, name)
        firsts = self._declare(first, name)
        zeroth = Ref(f"{total.name}.next", total.type)
        own = self.fresh(f"{name}.centre")
        type_ = firsts.type
        dtype = reference.dtype
        self.states.append(State(own, type_, literal(0.0, dtype)))
        kept = Ref(own, type_)

        def decayed(ref: Expr, change: str) -> Expr:
            if first.maximum is None:
                return build.convert(ref, dtype)
            moved = ref
            for _ in range(first.times):
                moved = build.mul(moved, getattr(points(first.maximum), change))
            return moved

        def at_old(r: Reference) -> Expr:
            return kept if r == reference else points(r).renewed

        near = self.pool.intern(value(first, at_old, build))
        self.update.append(Partial((f"{own}.tile",), "sum", (near,), first.condition, (type_,)))
        distance = build.add(decayed(firsts, "change"), Ref(f"{own}.tile", type_))
        mean = build.add(kept, build.div(distance, build.convert(zeroth, dtype)))
        new = self.let(f"{own}.mean", mean)
        renewed = self.let(f"{own}.next", self._chosen(build.apply("isfinite", new), new, kept))
        self.commits.append(Commit(own, renewed.name))
        change = self.let(f"{own}.step", self._step(total, kept, renewed))

        a, b = of_side("a", kept), of_side("b", kept)
        apart = build.mul(build.sub(b, a), decayed(of_side("b", total), "change_right"))
        right = build.add(decayed(of_side("b", firsts), "change_right"), apart)
        sums = build.add(decayed(of_side("a", firsts), "change_left"), right)
        both = build.convert(Ref(f"{total.name}.joined", total.type), dtype)
        new = self.let(f"{own}.joined_mean", build.add(a, build.div(sums, both)), merging=True)
        chosen: Expr = self._chosen(build.apply("isfinite", new), new, a)
        chosen = self._chosen(self._nothing(of_side("a", total)), b, chosen)
        chosen = self._chosen(self._nothing(of_side("b", total)), a, chosen)
        joined = self.let(f"{own}.joined", chosen, merging=True)
        self.merge_commits.append(Commit(own, joined.name))
        part = decayed(of_side("a", total), "change_left")
        self.gathered[joined.name] = self._common_centre(
            joined, a, build.convert(part, dtype), both
        )
        left = self.let(f"{own}.a", self._step(of_side("a", total), a, joined), merging=True)
        other = self.let(f"{own}.b", self._step(of_side("b", total), b, joined), merging=True)
        return Point(kept, renewed, change, joined, left, other)

    def _common_centre(
        self, joined: Ref, own: Expr, part: Expr, both: Expr
    ) -> list[Each | Partial | Let]:
        """Return steps to one centre for many parts: the mean of theirs, weighted by what they saw.

        Where that mean is not finite, the largest of the centres is near the data too.
        """
        build = self.build
        name, types = joined.name, (replace(joined.type, weak=False),)
        share = build.where(build.apply("eq", part, 0), literal(0.0), build.mul(part, own))
        mean, most = Ref(f"{name}.mean", types[0]), Ref(f"{name}.most", types[0])
        quotient = build.div(mean, both)
        return [
            Partial((mean.name,), "sum", (share,), None, types),
            Partial((most.name,), "max", (own,), None, types),
            Let(name, self._chosen(build.apply("isfinite", quotient), quotient, most)),
        ]

    def _step(self, total: Expr, old: Expr, new: Expr) -> Expr:
        """Return c - c', or 0 where the sums are empty: their c is no place to move from."""
        return self._chosen(self._nothing(total), literal(0.0), self.build.sub(old, new))

    def _nothing(self, total: Expr) -> Expr:
        return self.build.apply("eq", total, 0)

    def _chosen(self, condition: Expr, then: Expr, otherwise: Expr) -> Expr:
        return self.build.where(condition, then, otherwise)

    def let(self, name: str, value: Expr, *, merging: bool = False) -> Ref:
        """Append `name = value` to update or merge; return the reference to it."""
        (self.merge if merging else self.update).append(Let(name, value))
        return Ref(name, value.type)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f".{i}" for i in range(count))
