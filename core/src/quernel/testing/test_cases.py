"""Cases that users of comparable systems met as faults, each with the one right outcome, on every backend."""

from __future__ import annotations

import importlib.util
import json
import linecache
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import (
    DeviceError,
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    OutOfBoundsError,
    ValidationError,
)
from quernel.testing.exact import INTEGERS, array, edges, pairs, widened
from quernel.testing.launching import on
from quernel.testing.outcomes import not_declared


def line_of(kernel: Any, text: str) -> int:
    """The line of the file on which the kernel's source says `text`."""
    code = kernel.__wrapped__.__code__
    for line in range(code.co_firstlineno, code.co_firstlineno + 40):
        if text in linecache.getline(code.co_filename, line):
            return line
    raise AssertionError(text)


def module_of(path: Path, source: str) -> ModuleType:
    """A module made of a file, as importing it would."""
    path.write_text(source, encoding="utf-8")
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- integers ---------------------------------------------------------------------------------------------------------


@qn.kernel
def quotient(a, b, out):
    i = qn.global_id()
    out[i] = a[i] // b[i]


@qn.kernel
def rest(a, b, out):
    i = qn.global_id()
    out[i] = a[i] % b[i]


def test_floor_division_rounds_down(quernel_device: Any) -> None:
    out = np.zeros(3, np.int32)
    on(quernel_device, quotient).over(3)(array([-7, 7, -1], qn.i32), array([2, -2, 2], qn.i32), out)
    assert out.tolist() == [-4, -4, -1]


def test_a_remainder_has_the_sign_of_the_divisor(quernel_device: Any) -> None:
    out = np.zeros(1, np.int32)
    on(quernel_device, rest).over(1)(array([-5], qn.i32), array([3], qn.i32), out)
    assert out[0] == 1


@qn.kernel
def divides_and_multiplies_back(a, b, holds):
    i = qn.global_id()
    holds[i] = (a[i] // b[i]) * b[i] + a[i] % b[i] == a[i]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_quotient_and_remainder_make_the_dividend(quernel_device: Any, dtype: Any) -> None:
    a, b = pairs(edges(dtype), [value for value in edges(dtype) if value])
    holds = np.zeros(len(a), bool)
    on(quernel_device, divides_and_multiplies_back).over(len(a))(array(a, dtype), array(b, dtype), holds)
    assert holds.all()


@qn.kernel
def compares(a, b, less, greater):
    i = qn.global_id()
    less[i] = a[i] < b[i]
    greater[i] = a[i] > b[i]


@pytest.mark.parametrize(
    ("left", "right", "is_less", "is_greater"),
    [((qn.u16, 40000), (qn.u16, 5), False, True), ((qn.i32, -1), (qn.u32, 0), True, False)],
)
def test_integers_compare_by_value(quernel_device: Any, left: Any, right: Any, is_less: bool, is_greater: bool) -> None:
    less, greater = np.zeros(1, bool), np.zeros(1, bool)
    on(quernel_device, compares).over(1)(array([left[1]], left[0]), array([right[1]], right[0]), less, greater)
    assert (less[0], greater[0]) == (is_less, is_greater)


@qn.kernel
def adds(a, b, out):
    i = qn.global_id()
    out[i] = a[i] + b[i]


def test_small_integers_do_not_wrap_before_they_are_stored(quernel_device: Any) -> None:
    out = np.zeros(1, np.int32)
    on(quernel_device, adds).over(1)(array([250], qn.u8), array([10], qn.u8), out)
    assert out[0] == 260


def test_u64_plus_i32_is_refused_naming_the_cast(quernel_device: Any) -> None:
    with pytest.raises(KernelTypeError, match="u64 and i32 have no common integer type") as caught:
        on(quernel_device, adds).over(1)(array([1], qn.u64), array([1], qn.i32), array([0], qn.u64))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of(adds, "out[i] = a[i] + b[i]")
    assert "qn.u64(" in str(caught.value.fix)


@qn.kernel
def far_apart(a, b, holds):
    i = qn.global_id()
    holds[i] = a[i] >= b[i] + 5000


def test_64_bit_integers_compare_without_a_detour_through_floats(quernel_device: Any) -> None:
    a = 1_700_000_000_000_000_000
    holds = np.ones(1, bool)
    on(quernel_device, far_apart).over(1)(array([a], qn.u64), array([a - 4999], qn.u64), holds)
    assert not holds[0]


@qn.kernel
def shifts(a, up, down, count):
    i = qn.global_id()
    up[i] = 1 << count[i]
    down[i] = a[i] >> 40


def test_division_by_zero_and_shifts_beyond_the_width_have_one_value(quernel_device: Any) -> None:
    least = -(2**31)
    a, b, out = array([9, least], qn.i32), array([0, -1], qn.i32), np.ones(2, np.int32)
    on(quernel_device, quotient).over(2)(a, b, out)
    assert out.tolist() == [0, least]
    on(quernel_device, rest).over(2)(a, b, out)
    assert out.tolist() == [0, 0]
    up, down = np.ones(1, np.int32), np.ones(1, np.int32)
    on(quernel_device, shifts).over(1)(array([-8], qn.i32), up, down, array([40], qn.i32))
    assert (up[0], down[0]) == (0, -1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_the_least_integer_divided_by_minus_one_wraps(quernel_device: Any, dtype: Any) -> None:
    if not dtype.is_signed:
        dtype = {8: qn.i8, 16: qn.i16, 32: qn.i32, 64: qn.i64}[dtype.bits]
    out = np.zeros(1, widened(dtype).numpy)
    on(quernel_device, quotient).over(1)(array([dtype.min], dtype), array([-1], dtype), out)
    assert out[0] == (-dtype.min if widened(dtype) is not dtype else dtype.min)


# --- conversions ------------------------------------------------------------------------------------------------------


@qn.kernel
def casts(byte, wide, x, doubles, unsigned, as_i32, as_i8, as_u16):
    i = qn.global_id()
    doubles[i] = qn.f64(byte[i])
    unsigned[i] = qn.u32(wide[i])
    as_i32[i] = qn.i32(x[i])
    as_i8[i] = qn.i8(x[i])
    as_u16[i] = qn.u16(x[i])


@pytest.mark.quernel_needs("f64")
def test_casts_keep_or_saturate(quernel_device: Any) -> None:
    doubles, unsigned = np.zeros(3), np.zeros(3, np.uint32)
    as_i32, as_i8, as_u16 = np.ones(3, np.int32), np.ones(3, np.int8), np.ones(3, np.uint16)
    x = np.array([math.nan, 1e30, -1e30], np.float32)
    byte, wide = np.full(3, 200, np.uint8), np.full(3, 3e9)
    on(quernel_device, casts).over(3)(byte, wide, x, doubles, unsigned, as_i32, as_i8, as_u16)
    assert doubles.tolist() == [200.0] * 3
    assert unsigned.tolist() == [3_000_000_000] * 3
    assert as_i32.tolist() == [0, 2**31 - 1, -(2**31)]
    assert as_i8.tolist() == [0, 127, -128]
    assert as_u16.tolist() == [0, 65535, 0]


@qn.kernel
def least_and_greatest(a, b, low, high):
    i = qn.global_id()
    low[i] = min(a[i], b[i])
    high[i] = max(a[i], b[i])


@pytest.mark.quernel_needs("f64")
def test_min_and_max_with_nan_and_zeros_are_pythons(quernel_device: Any) -> None:
    a = [math.nan, 1.0, -0.0, 0.0, math.nan]
    b = [1.0, math.nan, 0.0, -0.0, math.nan]
    low, high = np.zeros(5), np.zeros(5)
    on(quernel_device, least_and_greatest).over(5)(np.array(a), np.array(b), low, high)
    expected = [min(x, y) for x, y in zip(a, b, strict=True)], [max(x, y) for x, y in zip(a, b, strict=True)]
    assert np.array_equal(low, expected[0], equal_nan=True)
    assert np.array_equal(high, expected[1], equal_nan=True)
    assert np.signbit(low).tolist()[2:4] == np.signbit(high).tolist()[2:4] == [True, False]


@qn.kernel
def rounds(x, out, kept):
    i = qn.global_id()
    out[i] = round(x[i])
    kept[i] = -x[i] * 0.0


@pytest.mark.quernel_needs("f64")
def test_round_is_to_even_and_negative_zero_is_kept(quernel_device: Any) -> None:
    out, kept = np.zeros(3, np.int64), np.zeros(3)
    on(quernel_device, rounds).over(3)(np.array([0.5, 1.5, 2.5]), out, kept)
    assert out.tolist() == [0, 2, 2]
    assert np.signbit(kept).all()


@qn.kernel
def accumulates(x, out):
    i = qn.global_id()
    acc = 0.0
    for k in range(x.shape[0]):
        acc += x[k]
    out[i] = acc


@pytest.mark.quernel_needs("f64")
def test_a_float_literal_joined_with_f32_is_f32(quernel_device: Any) -> None:
    x = np.array([16777216.0, 1.0, 1.0], np.float32)
    out = np.zeros(1)
    on(quernel_device, accumulates).over(1)(x, out)
    assert out[0] == 16777216.0


@qn.kernel
def powers(a, b, out):
    i = qn.global_id()
    out[i] = a[i] ** b[i]


@qn.kernel
def cube_root_by_power(a, out):
    i = qn.global_id()
    out[i] = a[i] ** (1 / 3)


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("fast_math", [False, True])
def test_pow_of_negatives_is_cs_whatever_the_options(quernel_device: Any, fast_math: bool) -> None:
    out = np.zeros(1)
    on(quernel_device, powers.options(fast_math=fast_math)).over(1)(np.array([-1.0]), np.array([2.0]), out)
    assert out[0] == 1.0
    on(quernel_device, cube_root_by_power.options(fast_math=fast_math)).over(1)(np.array([-8.0]), out)
    assert np.isnan(out[0])


# --- statements -------------------------------------------------------------------------------------------------------


@qn.kernel
def loop_variable_goes_on(out):
    count = 0
    for i in range(2):  # noqa: B007
        count += 1
    while i < 5:
        i += 1
        count += 10
    out[0] = count
    out[1] = i


def test_a_loop_variable_keeps_its_value_after_the_loop(quernel_device: Any) -> None:
    out = np.zeros(2, np.int64)
    on(quernel_device, loop_variable_goes_on).over(1)(out)
    assert out.tolist() == [42, 5]


@qn.kernel
def maybe_unassigned(x, out):
    i = qn.global_id()
    if x[i] > 0:
        y = x[i]
    out[i] = y


def test_a_name_that_may_be_unassigned_is_refused_where_it_is_read(quernel_device: Any) -> None:
    with pytest.raises(KernelTypeError, match="y") as caught:
        on(quernel_device, maybe_unassigned).over(1)(np.ones(1), np.ones(1))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of(maybe_unassigned, "out[i] = y")


@qn.kernel
def guarded(a, n, out):
    i = qn.global_id()
    if i < n and a[i] > 0:
        out[i] = 1
    if i >= n or a[i] <= 0:
        out[i] += 2


@pytest.mark.quernel_needs("f64")
def test_and_and_or_do_not_read_beyond_the_array(quernel_device: Any) -> None:
    out = np.zeros(40, np.int32)
    on(quernel_device, guarded).over(40)(np.array([1.0, -1.0, 2.0]), 3, out)
    assert out.tolist() == [1, 2, 1] + [2] * 37


@qn.kernel
def returns_from_loops(x, out):
    i = qn.global_id()
    while True:
        out[i] += 1
        if out[i] > x[i]:
            if x[i] > 2:
                return
            break
    for a in range(3):
        for b in range(3):
            if a * 3 + b == x[i] + 4:
                return
            out[i] += 10
    out[i] += 100


def test_return_inside_loops_leaves_the_kernel_for_that_thread(quernel_device: Any) -> None:
    out = np.zeros(6, np.int64)
    on(quernel_device, returns_from_loops).over(6)(np.array([0, 1, 2, 3, 4, 7]), out)
    assert out.tolist() == [41, 52, 63, 4, 5, 8]


@qn.kernel
def annotated(out):
    i = qn.global_id()
    acc: qn.f64 = 0
    out[i] = acc


def test_an_annotated_local_is_refused(quernel_device: Any) -> None:
    with pytest.raises(KernelSyntaxError, match="annotat") as caught:
        on(quernel_device, annotated).over(1)(np.zeros(1))
    assert "acc = qn.f64(0)" in str(caught.value.fix)
    assert caught.value.lineno == line_of(annotated, "acc: qn.f64 = 0")


@qn.func
def even(n):
    return True if n == 0 else odd(n - 1)


@qn.func
def odd(n):
    return False if n == 0 else even(n - 1)


@qn.func
def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)


@qn.kernel
def recursive(n, out):
    i = qn.global_id()
    out[i] = factorial(n[i])


@qn.kernel
def mutually_recursive(n, out):
    i = qn.global_id()
    out[i] = even(n[i])


@pytest.mark.parametrize(
    ("kernel", "names"), [(recursive, ["factorial"]), (mutually_recursive, ["even", "odd"])], ids=["direct", "mutual"]
)
def test_recursion_is_refused_with_the_names_of_the_cycle(quernel_device: Any, kernel: Any, names: list[str]) -> None:
    with pytest.raises(KernelSyntaxError, match="recurs") as caught:
        on(quernel_device, kernel).over(1)(np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert all(name in str(caught.value) for name in names)


# --- names ------------------------------------------------------------------------------------------------------------


@qn.kernel
def double(x, out):
    i = qn.global_id()
    int, new, max, kernel, __x, restrict = x[i], 1.0, 2.0, 3.0, 4.0, 5.0  # noqa: A001
    float_ = int + new * max
    out[i] = float_ + kernel * __x + restrict


@qn.kernel
def main(int, __global, local, entry, out):  # noqa: A002
    i = qn.global_id()
    define = int[i] + __global[i] + local
    out[i] = define + entry


@pytest.mark.quernel_needs("f64")
def test_names_that_other_languages_reserve_are_names(quernel_device: Any) -> None:
    x, out = np.array([1.0, 2.0]), np.zeros(2)
    on(quernel_device, double).over(2)(x, out)
    assert out.tolist() == [20.0, 21.0]
    on(quernel_device, main).over(2)(x, x, 10.0, 100.0, out)
    assert out.tolist() == [112.0, 114.0]


NON_ASCII = """\
import quernel as qn

ϕ = 1.5

@qn.func
def přičti(č, ϕ_2):
    return č + ϕ_2 * ϕ

@qn.kernel
def jádro(č, výsledek):
    ř = qn.global_id()
    výsledek[ř] = přičti(č[ř], 2)
"""


@pytest.mark.quernel_needs("f64")
def test_names_and_paths_beyond_ascii_are_names_and_paths(quernel_device: Any, tmp_path: Path) -> None:
    folder = tmp_path / "složka ϕ"
    folder.mkdir()
    module = module_of(folder / "jádra.py", NON_ASCII)
    out = np.zeros(2)
    on(quernel_device, module.jádro).over(2)(np.array([1.0, 2.0]), out)
    assert out.tolist() == [4.0, 5.0]


# --- arrays -----------------------------------------------------------------------------------------------------------


@qn.kernel
def increments(a):
    i = qn.global_id()
    a[i] += 1


@qn.kernel
def writes_plane(a):
    i, j = qn.global_id()
    a[i, j] = i * 10 + j


@pytest.mark.quernel_needs("f64")
def test_writing_through_a_view_reaches_the_callers_array(quernel_device: Any) -> None:
    whole = np.zeros((2, 2))
    on(quernel_device, increments).over(2)(whole[:, 0])
    assert whole.tolist() == [[1, 0], [1, 0]]
    line = np.zeros(6, np.int32)
    on(quernel_device, increments).over(3)(line[::2])
    assert line.tolist() == [1, 0, 1, 0, 1, 0]
    line[:] = [0, 0, 0, 0, 7, 8]
    on(quernel_device, increments).over(2)(line[::-1])
    assert line.tolist() == [0, 0, 0, 0, 8, 9]
    plane = np.zeros((2, 3))
    on(quernel_device, writes_plane).over((3, 2))(plane.T)
    assert plane.tolist() == [[0, 10, 20], [1, 11, 21]]


@pytest.mark.quernel_needs("f64")
def test_writing_through_a_repeating_view_is_refused(quernel_device: Any) -> None:
    with pytest.raises(LaunchError, match="'a'"):
        on(quernel_device, increments).over(3)(np.broadcast_to(np.zeros(1), (3,)))


@pytest.mark.parametrize("shape", [(0,), (5, 0, 5)])
def test_arrays_without_elements_are_arguments(quernel_device: Any, shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape, np.float32)
    out = np.zeros(1, np.int64)
    on(quernel_device, sizes).over(1)(empty, out)
    assert out[0] == shape[0]
    on(quernel_device, nothing).over(shape)(empty)
    on(quernel_device, nothing).over(0)(empty)


@qn.kernel
def sizes(a, out):
    out[qn.global_id()] = len(a)


@qn.kernel
def nothing(a):
    pass


@pytest.mark.quernel_needs("host_access", "f64")
def test_a_read_only_array_is_read_and_never_written(quernel_device: Any) -> None:
    fixed = np.array([1.0, 2.0])
    fixed.flags.writeable = False
    out = np.zeros(2)
    on(quernel_device, adds).over(2)(fixed, fixed, out)
    assert out.tolist() == [2.0, 4.0]
    with pytest.raises(LaunchError, match="'out'"):
        on(quernel_device, adds).over(2)(out, out, fixed)
    assert fixed.tolist() == [1.0, 2.0]


@qn.kernel
def takes_scalars(x: qn.f32, n: qn.i32, out):
    i = qn.global_id()
    out[i] = x + n


@pytest.mark.quernel_needs("f64")
def test_a_scalar_converts_by_its_declared_type_or_is_refused(quernel_device: Any) -> None:
    out = np.zeros(1)
    on(quernel_device, takes_scalars).over(1)(0.1, 0, out)
    assert out[0] == float(np.float32(0.1))
    on(quernel_device, takes_scalars).over(1)(np.float64(0.1), 0, out)
    assert out[0] == float(np.float32(0.1))
    with pytest.raises(KernelTypeError, match="parameter 'n' is i32 and got 1099511627776"):
        on(quernel_device, takes_scalars).over(1)(0.1, 2**40, out)


@qn.kernel
def reads_at_the_end(a, out, index: int):
    out[0] = a[index]
    a[index] = 9


def untouched(device: Any, length: int) -> Any:
    """Bytes of zero, on the host where it can be, which gives memory only for what is touched."""
    return np.zeros(length, np.uint8) if device.is_host_accessible else device.zeros(length, qn.u8)


def test_an_element_beyond_2_to_the_31_is_the_right_one(quernel_device: Any) -> None:
    try:
        huge = untouched(quernel_device, 2**31 + 2)
    except (MemoryError, DeviceError):
        pytest.skip(not_declared(["2.0 GiB of memory"], quernel_device.info.backend))
    huge[2**31 + 1] = 77
    out = np.zeros(1, np.int64)
    on(quernel_device, reads_at_the_end).over(1)(huge, out, 2**31 + 1)
    assert out[0] == 77
    assert int(huge[2**31 + 1]) == 9
    assert int(huge[1]) == 0


def test_contiguous_shifted_strided_and_huge_arrays_give_the_same_results(quernel_device: Any) -> None:
    base = np.arange(64, dtype=np.float32)
    try:
        huge = untouched(quernel_device, 2**31 + 16)
    except (MemoryError, DeviceError):
        pytest.skip(not_declared(["2.0 GiB of memory"], quernel_device.info.backend))
    before = len(quernel_device.kernels)
    for view in (base[:20].copy(), base[1:21], base[::3][:20]):
        expected = view + 1
        on(quernel_device, increments).over(20)(view)
        assert np.array_equal(view, expected)
    assert len(quernel_device.kernels) - before <= 3
    on(quernel_device, increments).over(20)(huge)
    assert list(map(int, huge[:21])) == [1] * 20 + [0]


@qn.kernel
def too_few_indices(a, out):
    i = qn.global_id()
    out[i] = a[i, i]


@qn.kernel
def float_index(a, out):
    i = qn.global_id()
    out[i] = a[i * 1.0]


@qn.kernel
def negative_index(a, out):
    i = qn.global_id()
    out[i] = a[-1]


@pytest.mark.parametrize(
    ("kernel", "a", "line", "message"),
    [
        (too_few_indices, np.zeros((2, 2, 2)), "out[i] = a[i, i]", r"2.*3|3.*2"),
        (float_index, np.zeros(2), "out[i] = a[i * 1.0]", "f64"),
        (negative_index, np.zeros(2), "out[i] = a[-1]", "-1"),
    ],
    ids=["rank", "float", "negative"],
)
def test_an_impossible_index_is_refused_at_its_line(
    quernel_device: Any, kernel: Any, a: np.ndarray[Any, Any], line: str, message: str
) -> None:
    with pytest.raises((KernelTypeError, KernelSyntaxError), match=message) as caught:
        on(quernel_device, kernel).over(2)(a, np.zeros(2))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of(kernel, line)
    assert caught.value.where.file == __file__


@qn.kernel
def off_the_end(a, index: int):
    a[index] = 1


@pytest.mark.quernel_needs("checked", "f64", "host_access")
@pytest.mark.parametrize("index", [3, -1, 2**40])
def test_the_line_of_an_index_beyond_the_end_is_named(quernel_device: Any, index: int) -> None:
    memory = np.zeros(9)
    with pytest.raises(IndexError, match=rf"index {index} is outside a") as caught:
        on(quernel_device, off_the_end).options(checked=True).over(1)(memory[3:6], index)
    assert isinstance(caught.value, OutOfBoundsError)
    assert caught.value.where is not None
    assert caught.value.where.line == line_of(off_the_end, "a[index] = 1")
    assert not memory.any()


# --- launches ---------------------------------------------------------------------------------------------------------


@qn.kernel
def knows_its_block(out):
    out[qn.global_id()] = qn.local_id()


def test_a_kernel_that_knows_its_block_is_refused_over_an_extent(quernel_device: Any) -> None:
    with pytest.raises(KernelSyntaxError, match="`local_id` needs blocks") as caught:
        on(quernel_device, knows_its_block).over(4)(np.zeros(4))
    assert caught.value.where is not None
    assert caught.value.where.line == line_of(knows_its_block, "qn.local_id()")
    assert "kernel[qn.cdiv(extent, block), block]" in str(caught.value.fix)


def test_a_block_beyond_the_devices_limit_is_refused_naming_both(quernel_device: Any) -> None:
    limit = quernel_device.target_info.limits.max_block_threads
    with pytest.raises(ValidationError, match=rf"{limit + 1}.*{limit}\b"):
        on(quernel_device, knows_its_block)[1, limit + 1](np.zeros(limit + 1))


FACTOR = 2


@qn.kernel
def uses_a_global(x):
    i = qn.global_id()
    x[i] *= FACTOR


def test_a_changed_global_counts_from_the_next_launch(quernel_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([1, 10])
    on(quernel_device, uses_a_global).over(2)(x)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    on(quernel_device, uses_a_global).over(2)(x)
    assert x.tolist() == [10, 100]
    monkeypatch.undo()
    on(quernel_device, uses_a_global).over(2)(x)
    assert x.tolist() == [20, 200]


def test_a_changed_closure_counts_from_the_next_launch(quernel_device: Any) -> None:
    step = 1

    @qn.kernel
    def adds_step(x):
        i = qn.global_id()
        x[i] += step

    x = np.zeros(2, np.int64)
    on(quernel_device, adds_step).over(2)(x)
    step = 10
    on(quernel_device, adds_step).over(2)(x)
    assert x.tolist() == [11, 11]


def test_a_file_that_changed_after_its_import_is_refused(quernel_device: Any, tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    source = "import quernel as qn\n\n@qn.kernel\ndef k(x):\n    x[qn.global_id()] = 1\n"
    module = module_of(path, source)
    path.write_text(source.replace("= 1", "= 2"))
    os.utime(path, (1, 1))
    with pytest.raises(KernelSyntaxError, match="changed"):
        on(quernel_device, module.k).over(1)(np.zeros(1))


@qn.kernel
def first_of_two(x):
    i = qn.global_id()
    x[i] = x[i] * 2 + 1


@qn.kernel
def second_of_two(x):
    i = qn.global_id()
    x[i] = x[i] * 2 + 1


@pytest.mark.quernel_needs("ir_reuse", "f64")
def test_two_kernels_of_equal_ir_are_one_artifact_and_two_records(quernel_device: Any, tmp_path: Path) -> None:
    with qn.environment(tmp_path):
        x = np.ones(2)
        on(quernel_device, first_of_two).over(2)(x)
        on(quernel_device, second_of_two).over(2)(x)
        lines = [line for file in (tmp_path / "records").iterdir() for line in file.read_text().splitlines()]
    records = [record for record in map(json.loads, lines) if record.get("record") == "compilation"]
    assert x.tolist() == [7.0, 7.0]
    assert [(record["kernel"], record["outcome"]) for record in records] == [
        ("first_of_two", "compiled"),
        ("second_of_two", "rekeyed"),
    ]


# --- several processes ------------------------------------------------------------------------------------------------

SHIPPED = """\
import quernel as qn
from library import scaled

CONSTANT = 3

@qn.kernel
def k(x):
    i = qn.global_id()
    x[i] = scaled(x[i]) + CONSTANT
"""
LIBRARY = """\
import quernel as qn

@qn.func
def scaled(v):
    return v * 2

def unrelated():
    return 1
"""
PROGRAM = """\
import pickle, sys
import numpy as np
import quernel as qn
import shipped

device = qn.device(sys.argv[1])
x = device.array(np.array([1.0, 2.0]))
kernel = pickle.loads(bytes.fromhex(sys.argv[2])) if len(sys.argv) > 2 else shipped.k
kernel.over(2)(x)
print(x.numpy().tolist())
print(kernel.specialize(x).definition.id.digest)
print(pickle.dumps(shipped.k).hex())
"""


class Project:
    """Two modules and a program in a folder of their own, run in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("shipped.py", SHIPPED)
        self.write("library.py", LIBRARY)
        self.write("program.py", PROGRAM)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, quernel_device: Any, *arguments: str) -> tuple[str, str, str]:
        """What the kernel computed, its identity, and its pickle."""
        environment = {**os.environ, "QUERNEL_ENVIRONMENT": str(self.folder / "store"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "program.py", quernel_device.info.backend, *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        self.complaints = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]
        computed, identity, pickled = done.stdout.split("\n")[:3]
        return computed, identity, pickled


@pytest.mark.quernel_needs("f64")
def test_another_process_sees_the_new_value_of_what_was_edited(quernel_device: Any, tmp_path: Path) -> None:
    project = Project(tmp_path)
    first = project.run(quernel_device)
    assert first[0] == "[5.0, 7.0]"
    project.write("library.py", LIBRARY.replace("return 1", "return 2  # nothing to do with the kernel"))
    assert project.run(quernel_device) == first
    project.write("library.py", LIBRARY.replace("v * 2", "v * 10"))
    second = project.run(quernel_device)
    assert second[0] == "[13.0, 23.0]"
    assert second[1] != first[1]
    project.write("shipped.py", SHIPPED.replace("CONSTANT = 3", "CONSTANT = 4"))
    third = project.run(quernel_device)
    assert third[0] == "[14.0, 24.0]"
    assert third[1] not in (first[1], second[1])


@pytest.mark.quernel_needs("f64")
def test_a_pickled_kernel_launches_in_another_process_with_its_identity(quernel_device: Any, tmp_path: Path) -> None:
    project = Project(tmp_path)
    computed, identity, pickled = project.run(quernel_device)
    assert project.run(quernel_device, pickled) == (computed, identity, pickled)


@pytest.mark.quernel_needs("f64")
def test_a_store_that_cannot_be_used_is_one_warning_and_a_working_launch(quernel_device: Any, tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "store").write_text("this is no folder")
    assert project.run(quernel_device)[0] == "[5.0, 7.0]"
    assert len(project.complaints) == 1, project.complaints
    assert "are not kept in" in project.complaints[0]
