"""Folds of a unit: from elements to a thread's registers, to lanes, to warps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TypeAlias

from redlang.codegen.cuda import columns
from redlang.codegen.cuda.extremes import best_in_thread, suits
from redlang.codegen.cuda.folds import Folding, Lines, folding, side_by_side, warp_bytes
from redlang.codegen.cuda.frame import Frame, Value, conjunction
from redlang.codegen.cuda.keys import Keys, best, best_list, keys_for, sort_text
from redlang.codegen.cuda.monoids import monoid_folding
from redlang.codegen.cuda.narrow_sums import plain_folding
from redlang.codegen.cuda.values import Operands, Values
from redlang.codegen.scalars import arithmetic
from redlang.errors import InternalError
from redlang.ir.loops import Combine, Fold
from redlang.ir.program import Cast, Expr, Load
from redlang.ir.shifts import united
from redlang.ir.types import Type

WARP_BITS = 5
INDEXED = ("argmax", "argmin", "topk")
Joining: TypeAlias = Callable[[list[str]], tuple[Lines, list[str]]]
"""Lines and results for the names of left and right partial results."""


class Folds:
    """Writes the folds and combines of one kernel."""

    def __init__(self, frame: Frame, values: Values) -> None:
        self.frame = frame
        self.values = values

    def fold(self, statement: Fold) -> list[Value]:
        """Write a fold over the current ranges of its axes; return its results."""
        how, keys = self.how(statement)
        if keys is not None and statement.op != "topk" and suits(self.frame, statement, keys):
            states = self._across(statement.over, how, [self._searched(statement, keys)], ())
            return self._finished(how, states, (), statement.op)
        states = self.lifted(statement, how)
        kept = tuple(axis for axis in states[0].axes if axis not in statement.over)
        if statement.op == "topk":
            assert keys is not None
            assert statement.k is not None
            return self._list(statement, keys, statement.k, states, kept)
        if how.ordered:
            states = self._in_order(statement.over, how, states, kept)
        else:
            states = self._in_thread(how, states, kept, statement.op)
            states = self._across(statement.over, how, states, kept)
        return self._finished(how, states, kept, statement.op)

    def _searched(self, statement: Fold, keys: Keys) -> Value:
        operands = Operands()
        cut = [axis for axis in statement.over if not self.frame.is_whole(axis)]
        inside = [self._inside(axis, operands) for axis in cut]
        return best_in_thread(self.frame, self.values, statement, keys, inside, operands)

    def partial(self, statement: Fold) -> tuple[Folding, list[Value]]:
        """Write a fold of plain operations over what each thread holds."""
        how, _ = self.how(statement)
        states = self.lifted(statement, how)
        kept = tuple(axis for axis in states[0].axes if axis not in statement.over)
        return how, self._in_thread(how, states, kept, statement.op)

    def join_partial(self, statement: Fold, so_far: Sequence[Value]) -> None:
        """Fold what each thread holds and join it to scalar variables."""
        how, states = self.partial(statement)
        combiner = self.combiner(how, f"join_{statement.op}")
        names = [value.text for value in so_far]
        given = ", ".join([*names, *(state.text for state in states)])
        self.frame.line(f"{', '.join(names)} = {combiner}({given})")

    def together(
        self, statements: Sequence[Fold], partial: Sequence[tuple[Folding, list[Value]]]
    ) -> list[list[Value]]:
        """Write what is left of folds over the same axes, those of like tiles in one go."""
        found: dict[int, list[Value]] = {}
        groups: dict[tuple[str, ...], list[tuple[int, Folding, list[Value]]]] = {}
        for number, (how, states) in enumerate(partial):
            groups.setdefault(states[0].axes, []).append((number, how, states))
        whole = self._in_columns(statements, partial)
        if whole is not None:
            return whole
        for kept, members in groups.items():
            every = side_by_side([how for _, how, _ in members])
            given = [state for *_, states in members for state in states]
            folded = iter(self._across(statements[0].over, every, given, kept))
            for number, how, states in members:
                own = [next(folded) for _ in states]
                found[number] = self._finished(how, own, kept, statements[number].op)
        return [found[number] for number in range(len(statements))]

    def _in_columns(
        self, statements: Sequence[Fold], partial: Sequence[tuple[Folding, list[Value]]]
    ) -> list[list[Value]] | None:
        """Write folds of many values over all threads of a block, if they are that."""
        values = [value for _, states in partial for value in states]
        if len(values) > len(partial) or any(how.ordered for how, _ in partial):
            return None
        if not columns.suits(self.frame, statements[0].over, values):
            return None
        functions = [
            self.combiner(how, f"join_{statement.op}")
            for (how, _), statement in zip(partial, statements, strict=True)
        ]
        folded = columns.fold(self.frame, functions, values)
        each = zip(folded, partial, statements, strict=True)
        return [self._finished(how, [v], v.axes, fold.op) for v, (how, _), fold in each]

    def how(self, statement: Fold) -> tuple[Folding, Keys | None]:
        """Return how a fold's elements become states and join, and its keys if it has any."""
        element = statement.values[0].type.dtype
        if statement.monoid is not None:
            return monoid_folding(statement.monoid), None
        if statement.op not in INDEXED:
            return plain_folding(self.frame, statement), None
        limits = [self.frame.classes.limits.get(axis) for axis in statement.over]
        known = [limit for limit in limits if limit is not None]
        keys = keys_for(
            self._storage(statement.values[0]),
            element,
            prod(known) if len(known) == len(limits) else None,
            largest=statement.op != "argmin",
        )
        return best(keys), keys

    def _storage(self, expr: Expr) -> str:
        """Return the storage type that holds every value of an expression, or its own type."""
        match expr:
            case Cast(to=to, explicit=True):
                return to.name
            case Load(array=array):
                return self.frame.memories[array].dtype.name
            case _:
                return expr.type.dtype.name

    # Elements ---------------------------------------------------------------------------------

    def lifted(self, statement: Fold, how: Folding) -> list[Value]:
        """Return the state of every element; what takes no part is neutral."""
        frame = self.frame
        exprs = [*statement.values]
        if statement.condition is not None:
            exprs.append(united(statement.condition))
        axes = {axis for expr in exprs for axis in expr.type.axes} | set(statement.over)
        tile = frame.tile_axes(axes)
        operands = Operands()
        bare = [self.values.operand_form(expr, tile, operands) for expr in exprs]
        texts, setting = self.values.spelled(bare, operands)
        tests = [texts[-1]] if statement.condition is not None else []
        tests += [
            self._inside(axis, operands) for axis in statement.over if not frame.is_whole(axis)
        ]
        lines = list(setting.lines)
        given = texts[: len(statement.values)]
        if how.indexed:
            given.append(self.values.flat_index(statement.over, operands))
        added, states = how.lift(*given)
        lines += added
        if tests:
            lines.append(f"takes_part = {conjunction(tests)}")
            states = [
                f"select(takes_part, {state}, {neutral})"
                for state, neutral in zip(states, how.neutral, strict=True)
            ]
        base = f"{statement.op}_of"
        return self.values.mapped(base, how.codes, lines, states, operands, tile, frame.depth)

    def _inside(self, axis: str, operands: Operands) -> str:
        """Return the argument that says whether an element lies inside an axis."""
        frame = self.frame
        spread = frame.spread(axis)
        # Whole groups lie inside or outside where the extent is a multiple of their size.
        group = gcd(frame.classes.multiple(axis), spread.width)
        reaches = tuple(reach // group * group for reach in spread.reaches)

        def text() -> str:
            left = frame.left(axis)
            test = frame.module.declare(f"{axis}_test", f"t.inside({reaches})")
            return f"{test}({left})"

        name = frame.variable("inside", axis, frame.axis_depth(axis), text)
        return operands.name(Value(name, frame.tile_axes([axis]), "bool"))

    # States -----------------------------------------------------------------------------------

    def combiner(self, how: Folding, base: str) -> str:
        """Return the name of the function that joins two states."""
        sides = [[f"{side}{i}" for i in range(len(how.codes))] for side in "ab"]
        names = [name for side in sides for name in side]
        lines, results = how.combine(*names)
        arguments = list(zip(names, (*how.codes, *how.codes), strict=True))
        return self.frame.module.function(base, how.codes, arguments, lines, results)

    def _in_thread(
        self, how: Folding, states: list[Value], kept: tuple[str, ...], op: str
    ) -> list[Value]:
        frame = self.frame
        tile = states[0].axes
        if tile == kept:
            return states
        combiner = self.combiner(how, f"join_{op}")
        over = " ".join(axis for axis in tile if axis not in kept)
        make = frame.module.declare(
            f"fold_{op}", f't.fold({combiner}, {frame.counts(tile)}, "{over}")'
        )
        return self._called(make, "", states, kept, op)

    def _called(
        self, function: str, before: str, states: list[Value], axes: tuple[str, ...], base: str
    ) -> list[Value]:
        names = [self.frame.module.names.fresh(base) for _ in states]
        given = ", ".join(state.text for state in states)
        self.frame.line(f"{', '.join(names)} = {function}({before}{given})")
        return [Value(name, axes, s.code) for name, s in zip(names, states, strict=True)]

    def _across(
        self, over: Sequence[str], how: Folding, states: list[Value], kept: tuple[str, ...]
    ) -> list[Value]:
        """Fold over the threads that share the axes `over`, except those of a strip."""
        frame = self.frame
        plan = frame.plan
        bits = sorted(b for axis in over if axis not in plan.strips for b in plan.bits(axis))
        if not bits:
            return states
        count = frame.size(kept)
        combiner = self.combiner(how, "join")
        lanes = [bit for bit in bits if bit < WARP_BITS]
        if lanes:
            masks = tuple(1 << bit for bit in lanes)
            ordered = ", ordered=True" if how.ordered else ""
            make = frame.module.declare("lanes", f"t.lanes({combiner}, {count}, {masks}{ordered})")
            states = self._called(make, "", states, kept, "all")
        inside = (plan.threads - 1).bit_length()
        warps = [bit for bit in bits if WARP_BITS <= bit < inside]
        if warps:
            peers = 1 << len(warps)
            make = frame.module.declare(
                "warps", f"t.warps({combiner}, {count}, {peers}, {frame.shared_bytes})"
            )
            rest = [b for b in range((plan.threads - 1).bit_length()) if b not in bits]
            frame.shared_bytes += warp_bytes(how.codes, count, peers) << len(rest)
            mask = sum(1 << bit for bit in lanes)
            writes = f"({frame.thread()} & i32({mask})) == i32(0)" if mask else "True"
            before = f"{frame.thread_bits(rest)}, {frame.thread_bits(warps)}, {writes}, "
            states = self._called(make, before, states, kept, "all")
        blocks = [bit for bit in bits if bit >= inside]
        return self._across_blocks(how, states, kept, bits) if blocks else states

    def _across_blocks(
        self, how: Folding, states: list[Value], kept: tuple[str, ...], bits: Sequence[int]
    ) -> list[Value]:
        """Fold over the blocks of a cluster, whose threads hold what was folded in their block."""
        frame = self.frame
        plan = frame.plan
        inside = (plan.threads - 1).bit_length()
        if frame.depth or 1 << sum(bit >= inside for bit in bits) != plan.blocks:
            raise InternalError("a cluster folds whole units, and outside of loops only")
        if not frame.has_met_cluster:
            # No block may write to one that has not begun.
            frame.line("t.cluster_wait()")
            frame.has_met_cluster = True
        count = frame.size(kept)
        rest = [bit for bit in range(inside) if bit not in bits]
        combiner = self.combiner(how, "join")
        make = frame.module.declare(
            "blocks", f"t.blocks({combiner}, {count}, {plan.blocks}, {frame.shared_bytes})"
        )
        frame.shared_bytes += warp_bytes(how.codes, count, plan.blocks) << len(rest)
        mask = sum(1 << bit for bit in bits if bit < inside)
        writes = f"({frame.thread()} & i32({mask})) == i32(0)" if mask else "True"
        before = f"{frame.thread_bits(rest)}, {writes}, "
        return self._called(make, before, states, kept, "all")

    def _in_order(
        self, over: Sequence[str], how: Folding, states: list[Value], kept: tuple[str, ...]
    ) -> list[Value]:
        """Fold where order matters: groups of neighbours, then threads, then groups.

        A thread's groups lie `threads * width` elements apart, with the other threads' groups
        between them, so each group is folded over the threads before groups are joined.
        """
        frame = self.frame
        (axis,) = over
        spread = frame.spread(axis)
        tile = states[0].axes
        counts: dict[str, int] = {}
        for own in tile:
            if own == axis:
                counts |= {"group": spread.registers, "place": spread.width}
            else:
                counts[own] = frame.spread(own).count
        combiner = self.combiner(how, "join_monoid")
        if spread.width > 1:
            make = frame.module.declare("fold_places", f't.fold({combiner}, {counts}, "place")')
            states = self._called(make, "", states, kept, "place")
            counts.pop("place")
        frame.slots["group"] = spread.registers
        grouped = tuple("group" if own == axis else own for own in tile)
        states = [replace(state, axes=grouped) for state in states]
        states = self._across(over, how, states, grouped)
        del frame.slots["group"]
        if spread.registers > 1:
            counts.pop("place", None)
            make = frame.module.declare("fold_groups", f't.fold({combiner}, {counts}, "group")')
            states = self._called(make, "", states, kept, "group")
        return [replace(state, axes=kept) for state in states]

    def _finished(
        self, how: Folding, states: list[Value], kept: tuple[str, ...], op: str
    ) -> list[Value]:
        operands = Operands()
        lines, texts = how.finish(*[operands.name(state) for state in states])
        return self.values.mapped(op, how.results, lines, texts, operands, kept, self.frame.depth)

    # Lists ------------------------------------------------------------------------------------

    def _list(
        self, statement: Fold, keys: Keys, k: int, entries: list[Value], kept: tuple[str, ...]
    ) -> list[Value]:
        """Fold to a sorted list: sort groups of k elements, then join lists like states."""
        frame = self.frame
        tile = entries[0].axes
        over = " ".join(axis for axis in tile if axis not in kept)
        dealt: list[list[Value]] = []
        for entry, neutral in zip(entries, keys.neutral, strict=True):
            make = frame.module.declare(
                "deal", f't.split("{entry.code}", {frame.counts(tile)}, "{over}", {k})'
            )
            names = [frame.module.names.fresh("entry") for _ in range(k)]
            frame.line(f"{', '.join(names)} = {make}({entry.text}, {neutral})")
            dealt.append([Value(name, ("chunk",), entry.code) for name in names])
        chunks = -(-prod(frame.spread(axis).count for axis in tile if axis not in kept) // k)
        how = best_list(keys, k)
        frame.slots["chunk"] = chunks
        wide = (*kept, "chunk") if chunks > 1 else kept
        slots = [replace(column[i], axes=wide) for i in range(k) for column in dealt]
        slots = self._sorted(keys, k, slots, wide)
        slots = self._in_thread(how, slots, kept, "topk")
        del frame.slots["chunk"]
        slots = self._across(statement.over, how, slots, kept)
        return self._stacked(statement.types, self._finished(how, slots, kept, "topk"), k, kept)

    def _sorted(self, keys: Keys, k: int, slots: list[Value], wide: tuple[str, ...]) -> list[Value]:
        frame = self.frame
        names, lines, results = sort_text(keys, k)
        codes = keys.codes * k
        arguments = list(zip(names, codes, strict=True))
        scalar = frame.module.function("sort", codes, arguments, lines, results)
        held = "".join(f', "{" ".join(wide)}"' for _ in slots)
        make = frame.module.declare(
            "sort_each", f"t.elementwise({scalar}, {frame.counts(wide)}{held})"
        )
        return self._called(make, "", slots, wide, "slot")

    def _stacked(
        self, types: Sequence[Type], parts: list[Value], k: int, kept: tuple[str, ...]
    ) -> list[Value]:
        """Return values and indices of a list as tiles with the slot axis last."""
        frame = self.frame
        results = []
        for half, type_ in ((parts[:k], types[0]), (parts[k:], types[1])):
            code = half[0].code
            make = frame.module.declare(
                f"stack_{code}", f't.stacked("{code}", {frame.size(kept)}, {k})'
            )
            given = ", ".join(part.text for part in half)
            tile = frame.tile_axes(type_.axes)
            results.append(self.values.assign("list", f"{make}({given})", tile, code, frame.depth))
        return results

    # Combines ---------------------------------------------------------------------------------

    def combine(self, statement: Combine) -> list[Value]:
        """Write the joining of two finished partial results; return the joined ones."""
        left, right = (
            [self.frame.known(name) for name in names]
            for names in (statement.left, statement.right)
        )
        if statement.op == "topk":
            assert statement.k is not None
            return self._joined_lists(statement, left, right, statement.k)
        how, joins_results = self._joining(statement)
        operands = Operands()
        given = [operands.name(value) for value in (*left, *right)]
        lines, texts = joins_results(given)
        tile = self.frame.tile_axes([a for type_ in statement.types for a in type_.axes])
        codes = how.results
        base = f"join_{statement.op}"
        return self.values.mapped(base, codes, lines, texts, operands, tile, self.frame.depth)

    def _joining(self, statement: Combine) -> tuple[Folding, Joining]:
        """Return how partial results, rather than states of a fold, are joined."""
        element = statement.types[0].dtype
        if statement.monoid is not None:
            how = monoid_folding(statement.monoid)
            return how, lambda given: how.combine(*given)
        if statement.op in INDEXED:
            how = best(Keys("pair", element.name, element, statement.op != "argmin"))
            return how, lambda given: how.combine(*given)
        how = folding(statement.op, statement.types, element)
        if statement.op in ("count", "prod"):
            op = "mul" if statement.op == "prod" else "add"
            return how, lambda given: ([], [arithmetic(op, given[0], given[1], element)])
        return how, lambda given: how.combine(*given)

    def _joined_lists(
        self, statement: Combine, left: list[Value], right: list[Value], k: int
    ) -> list[Value]:
        frame = self.frame
        element = statement.types[0].dtype
        keys = Keys("pair", element.name, element)
        how = best_list(keys, k)
        tile = frame.tile_axes(statement.types[0].axes)
        # A list of one element lies along no axis of its tile.
        slot = next((axis for axis in tile if frame.slots.get(axis) == k), "")
        kept = tuple(axis for axis in tile if axis != slot)
        operands = Operands()
        given: list[str] = []
        for side in (left, right):
            columns = [self._slots(value, tile, slot, k, kept) for value in side]
            given += [operands.name(column[i]) for i in range(k) for column in columns]
        lines, texts = how.combine(*given)
        joined = self.values.mapped(
            "join_topk", how.codes, lines, texts, operands, kept, frame.depth
        )
        parts = [*joined[::2], *joined[1::2]]
        return self._stacked(statement.types, parts, k, kept)

    def _slots(
        self, value: Value, tile: tuple[str, ...], slot: str, k: int, kept: tuple[str, ...]
    ) -> list[Value]:
        """Return the slots of a list, one tile each."""
        if not slot:
            return [value]
        frame = self.frame
        make = frame.module.declare(
            "deal", f't.split("{value.code}", {frame.counts(tile)}, "{slot}", {k})'
        )
        names = [frame.module.names.fresh("slot") for _ in range(k)]
        neutral = "i64(-1)" if value.code == "i64" else f"{value.code}(0)"
        frame.line(f"{', '.join(names)} = {make}({value.text}, {neutral})")
        return [Value(name, kept, value.code) for name in names]
