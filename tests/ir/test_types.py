import copy
import pickle

import pytest

from redlang.ir.types import DTYPES, F64, I64, U8, U64, compute_type


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_there_is_one_object_of_each_type_after_pickling_too(dtype):
    # All layers compare types with `is`; programs come from the disk cache.
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


def test_small_types_are_computed_in_wide_ones():
    assert compute_type(U8) is I64
    assert compute_type(U64) is U64
    assert {compute_type(d) for d in DTYPES.values() if d.kind == "float"} == {
        DTYPES["f32"],
        F64,
    }
