"""Data classes whose methods are written late are those of the standard library otherwise."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from redlang.values import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float = 0.5
    tags: list = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Checked:
    size: int

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("size is negative")

    def __repr__(self):
        return f"<{self.size}>"


@dataclass(slots=True)
class Open:
    x: int


@dataclass(frozen=True, slots=True, eq=False)
class Single:
    x: int


def test_arguments_are_bound_like_a_functions():
    point = Point(1, note="a")
    assert (point.x, point.y, point.tags, point.note) == (1, 0.5, [], "a")
    assert Point(1).tags is not Point(1).tags
    assert Point(y=2.0, x=3) == Point(3, 2.0)
    wrong: tuple[Any, ...]
    for wrong in ((), (1, 2, [], "", 5)):
        with pytest.raises(TypeError, match=r"Point.__init__\(\)"):
            Point(*wrong)
    unknown: dict[str, Any] = {"x": 1, "z": 2}
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(**unknown)


def test_equality_hash_and_text_leave_out_what_fields_say():
    assert Point(1, note="a") == Point(1, note="b") != Point(2)
    other: object = (1, 0.5, [])
    assert Point(1) != other
    assert Empty() == Empty()
    assert {Checked(1), Checked(1), Checked(2)} == {Checked(2), Checked(1)}
    assert hash(Empty()) == hash(())
    assert repr(Point(1, tags=["t"], note="a")) == "Point(x=1, y=0.5, tags=['t'])"
    assert repr(Empty()) == "Empty()"
    assert repr(Checked(4)) == "<4>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))


def test_frozen_objects_have_no_way_to_change():
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="'x'"):
        del point.x
    assert not hasattr(point, "__dict__")
    opened = Open(1)
    opened.x = 2
    assert opened == Open(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(opened)


def test_without_eq_an_object_equals_itself_alone():
    one = Single(1)
    assert one == one != Single(1)
    assert {one: 2}[one] == 2


def test_what_the_standard_library_does_with_data_classes_works():
    point = Point(1, 2.0, ["t"], "a")
    assert dataclasses.replace(point, x=3) == Point(3, 2.0, ["t"])
    assert dataclasses.asdict(point) == {"x": 1, "y": 2.0, "tags": ["t"], "note": "a"}
    for twin in (pickle.loads(pickle.dumps(point)), copy.copy(point), copy.deepcopy(point)):
        assert twin == point
        assert twin.note == "a"
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2.0)


def test_checks_run_whenever_an_object_is_made():
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(Checked(1), size=-1)


def test_a_subclass_with_fields_of_its_own():
    @dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @dataclass(frozen=True, slots=True)
    class Further(Base):
        b: int = 2

    assert Further(1) == Further(a=1, b=2)
    assert repr(Further(1, 3)).endswith("Further(a=1, b=3)")
