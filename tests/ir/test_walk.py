from hypothesis import given
from hypothesis import strategies as st

from redlang.ir import walk
from redlang.ir.build import Builder, literal, ref
from redlang.ir.program import Apply, Expr, Literal, Reduce, Ref
from redlang.ir.types import F32, F64, Type

B = Builder(("m", "n"))
X = B.load("x", F32, [B.index("m"), B.index("n")])
S = ref("s", Type(F32, ("m",)))


@st.composite
def expressions(draw, depth=4):
    leaf = st.sampled_from([X, S, literal(2), literal(0.5), B.size("n"), B.index("n")])
    if depth == 0 or draw(st.booleans()):
        return draw(leaf)
    op = draw(st.sampled_from(["add", "mul", "exp", "where"]))
    parts = [draw(expressions(depth - 1)) for _ in range({"exp": 1, "where": 2}.get(op, 2))]
    if op == "where":
        return B.where(B.apply("lt", B.index("n"), B.index("m")), *parts)
    return B.apply(op, *parts)


@given(expressions())
def test_rebuilding_from_the_same_children_gives_the_same_node(expr):
    assert walk.rebuild(expr, walk.children(expr)) is expr


@given(expressions())
def test_a_rewrite_that_changes_nothing_returns_the_expression_itself(expr):
    assert walk.rewrite(expr, lambda node: node) is expr
    assert walk.rewrite_to_fixed_point(expr, lambda node: node) is expr


@given(expressions())
def test_children_come_before_parents_and_each_node_once(expr):
    order = list(walk.nodes(expr))
    place = {id(node): i for i, node in enumerate(order)}
    assert len(place) == len(order)
    assert order[-1] is expr
    for node in order:
        assert all(place[id(child)] < place[id(node)] for child in walk.children(node))


@given(expressions())
def test_substituting_a_name_by_itself_changes_nothing(expr):
    assert walk.substitute(expr, {"s": S}) == expr


@given(expressions())
def test_renaming_there_and_back_is_the_identity(expr):
    there = walk.rename(expr, {"s": "t"})
    assert walk.refs(there) == ({"t"} if "s" in walk.refs(expr) else set())
    assert walk.rename(there, {"t": "s"}) == expr


def test_a_shared_node_is_rewritten_once():
    shared = B.exp(X)
    expr = B.add(shared, shared)
    calls = []

    def note(node):
        calls.append(node)
        return node

    walk.rewrite(expr, note)
    assert sum(node is shared for node in calls) == 1


def test_a_deep_chain_needs_no_recursion():
    expr: Expr = X
    for _ in range(5000):
        expr = Apply("neg", (expr,), expr.type)
    assert walk.size_of(expr) == 5003
    doubled = walk.rewrite(expr, lambda node: literal(1.0) if node is X else node)
    assert walk.arrays(doubled) == frozenset()


def test_substitute_keeps_types_unless_they_are_inferred_anew():
    expr = B.mul(S, literal(2.0))
    wide = ref("t", Type(F64, ("m", "n")))
    assert walk.substitute(expr, {"s": wide}).type == expr.type
    anew = walk.substitute(expr, {"s": wide}, rebuild=B.rebuild)
    assert anew.type == Type(F64, ("m", "n"))


def test_what_an_expression_reads():
    expr = B.add(B.mul(X, S), B.apply("rsqrt", B.size("n")))
    assert walk.refs(expr) == {"s"}
    assert walk.arrays(expr) == {"x"}
    assert walk.scalars(expr) == frozenset()
    assert walk.axes_used(B.apply("rsqrt", B.size("n"))) == {"n"}
    assert walk.axes_used(S) == {"m"}


def test_a_rule_reaches_its_fixed_point():
    def shrink(node):
        match node:
            case Literal(int(value)) if value > 3:
                return literal(value - 1)
            case _:
                return node

    assert walk.rewrite_to_fixed_point(B.add(literal(9), literal(2)), shrink) == B.add(3, 2)


def test_map_value_keeps_a_reduction_that_does_not_change():
    node = B.reduce("sum", ("n",), X)
    assert walk.map_value(node, lambda expr: expr) is node
    changed = walk.map_value(node, lambda expr: B.exp(expr))
    assert isinstance(changed, Reduce)
    assert changed.operand == B.exp(X)
    assert walk.value_refs(B.reduce("sum", ("n",), B.mul(X, S))) == {"s"}
    assert isinstance(S, Ref)


def test_the_size_of_a_tree_counts_what_is_shared_as_often_as_it_is_read():
    one = B.add(X, S)
    for _ in range(40):
        one = B.add(one, one)
    own = walk.size_of(B.add(X, S))
    assert walk.size_of(one) == own + 40
    assert walk.tree_size(one) == 2**40 * (own + 1) - 1
    assert walk.tree_size(one, lambda name: B.exp(X) if name == "s" else None) > 2**41
