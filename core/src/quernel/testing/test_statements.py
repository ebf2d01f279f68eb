"""Control flow, locals and device functions have Python's meaning: the same text runs as Python and as a kernel.

Each function below is a device function, so it runs on the host too; a kernel calls it for many inputs and the results
must agree.
"""

from __future__ import annotations

import linecache
import textwrap
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing.fuzz import programs
from quernel.testing.launching import on


@qn.func
def countdown(n):
    total = 0
    while n > 0:
        total += n
        n -= 1
    return total


@qn.func
def first_divisor(n):
    if n < 2:
        return n
    for candidate in range(2, n):
        if n % candidate == 0:
            return candidate
    return n


@qn.func
def odd_sum(n):
    total = 0
    for k in range(n):
        if k % 2 == 0:
            continue
        if k > 11:
            break
        total += k
    return total


@qn.func
def collatz(n):
    steps = 0
    while True:
        if n <= 1:
            return steps
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1


@qn.func
def nested_return(n):
    for a in range(1, n):
        for b in range(a, n):
            if a * a + b * b == n:
                return a * 100 + b
    return -1


@qn.func
def nested_break(n):
    found = 0
    for a in range(n):
        for b in range(n):
            if b > a:
                break
            if a * b == n:
                found = found * 10 + a
                continue
            found += 1
        if found > 50:
            break
    return found


@qn.func
def ranges(n):
    total = 0
    for k in range(3, n):
        total += k
    for k in range(n, 0, -2):
        total += 100 * k
    for k in range(n, n + 7, 3):
        total += 10000 * k
    for _ in range(5, 2):
        total += 1000000
    return total


@qn.func
def changed_loop_variable(n):
    total = 0
    for k in range(n):
        total += k
        k = k * 5
        total += k
    return total


@qn.func
def last_of_range(n):
    for k in range(4):
        n += k
    return n * 10 + k


@qn.func
def bound_evaluated_once(n):
    trips = 0
    limit = n
    for _ in range(limit):
        limit += 5
        trips += 1
    return trips * 1000 + limit


@qn.func
def grade(n):
    if n < 3:
        result = 1
    elif n < 7:
        result = 2
    elif n % 5 == 0:
        result = 3
    else:
        result = 4
    return result


@qn.func
def augmented(n):
    x = n
    x += 7
    x *= 3
    x -= 2
    x //= 2
    x %= 1000
    x <<= 3
    x >>= 1
    x |= 5
    x &= 1023
    x ^= 77
    return x


@qn.func
def chained(n):
    total = 0
    if 3 < n <= 9:
        total += 1
    if 9 >= n > 3 != n - 1:
        total += 2
    if n == n == n < 100:
        total += 4
    return total


@qn.func
def logic(n):
    a = n > 3
    b = n % 2 == 0
    total = 0
    if a and b:
        total += 1
    if a or b:
        total += 2
    if not a:
        total += 4
    if (a and not b) or n == 2:
        total += 8
    return total if a != b else -total


@qn.func
def conditional(n):
    return n * 2 if n % 3 == 0 else (n - 5 if n > 6 else n + 1)


@qn.func
def quotient_and_rest(n):
    return n // 7 * 100 + n % 7


@qn.func
def calls_another(n):
    return collatz(n + 1) + quotient_and_rest(collatz(n + 2))


@qn.func
def returns_in_branches(n):
    if n > 10:
        if n % 2 == 0:
            return 1
        n += 1
    elif n == 5:
        return 2
    while n > 3:
        n -= 4
        if n == 2:
            return 3
    return n


@qn.func
def passes(n):
    if n > 4:
        pass
    else:
        n = -n
    for _ in range(n):
        pass
    return n


@qn.func
def while_with_condition_that_calls(n):
    trips = 0
    while quotient_and_rest(n) > 100 and trips < 20:
        n -= 1
        trips += 1
    return trips


FUNCTIONS = [
    countdown,
    first_divisor,
    odd_sum,
    collatz,
    nested_return,
    nested_break,
    ranges,
    changed_loop_variable,
    last_of_range,
    bound_evaluated_once,
    grade,
    augmented,
    chained,
    logic,
    conditional,
    quotient_and_rest,
    calls_another,
    returns_in_branches,
    passes,
    while_with_condition_that_calls,
]


def kernel_of(function: Callable[[int], int]) -> Any:
    @qn.kernel
    def apply(n, out):
        i = qn.global_id()
        out[i] = function(n[i])

    return apply


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dtype", [qn.i64, qn.i32], ids=str)
def test_a_function_gives_in_a_kernel_what_it_gives_in_python(quernel_device: Any, function: Any, dtype: Any) -> None:
    n = np.arange(40, dtype=dtype.numpy)
    out = np.full(40, -999, np.int64)
    on(quernel_device, kernel_of(function)).over(40)(n, out)
    assert out.tolist() == [function(value) for value in range(40)]


# --- in kernels themselves --------------------------------------------------------------------------------------------


@qn.kernel
def returns_early(x, out):
    i = qn.global_id()
    if x[i] < 0:
        return
    out[i] = 1
    for k in range(10):
        if k == x[i]:
            return
        out[i] += 1
    out[i] = -5


def test_return_ends_the_thread_alone(quernel_device: Any) -> None:
    x = np.array([-3, 0, 4, 9, 10, -1], np.int32)
    out = np.zeros(6, np.int32)
    on(quernel_device, returns_early).over(6)(x, out)
    assert out.tolist() == [0, 1, 5, 10, -5, 0]


@qn.kernel
def swaps(x, y):
    i = qn.global_id()
    a, b = x[i], y[i]
    a, b = b, a
    x[i], y[i] = a, b


@pytest.mark.quernel_needs("f64")
def test_tuple_assignment_evaluates_the_right_side_first(quernel_device: Any) -> None:
    x, y = np.arange(5.0), np.arange(5.0) + 10
    on(quernel_device, swaps).over(5)(x, y)
    assert x.tolist() == [10, 11, 12, 13, 14]
    assert y.tolist() == [0, 1, 2, 3, 4]


@qn.kernel
def updates_elements(x, y):
    i = qn.global_id()
    x[i] += y[i]
    x[i] *= 2
    x[i] //= 3


def test_augmented_assignment_updates_elements(quernel_device: Any) -> None:
    x, y = np.array([1, 2, 250], np.uint8), np.array([10, 20, 10], np.uint8)
    on(quernel_device, updates_elements).over(3)(x, y)
    expected = []
    for a, b in ((1, 10), (2, 20), (250, 10)):
        expected.append(((a + b) % 256 * 2) % 256 // 3)
    assert x.tolist() == expected


@qn.kernel
def reads_shape(a, out):
    i = qn.global_id()
    out[i] = len(a) * 10000 + a.shape[0] * 100 + a.shape[1]


def test_shapes_are_those_of_the_argument(quernel_device: Any) -> None:
    out = np.zeros(2, np.int64)
    on(quernel_device, reads_shape).over(2)(np.zeros((3, 17), np.float32), out)
    assert out.tolist() == [30317, 30317]


@qn.func
def blend(source, target, row, weight):
    for k in range(source.shape[1]):
        target[row, k] = source[row, k] * weight
    return source[row, 0]


@qn.kernel
def hands_arrays_on(a, b, firsts):
    i = qn.global_id()
    firsts[i] = blend(a, b, i, 0.5)


def test_arrays_are_handed_to_device_functions(quernel_device: Any) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b, firsts = np.zeros_like(a), np.zeros(3, np.float32)
    on(quernel_device, hands_arrays_on).over(3)(a[:, ::-1], b, firsts)
    assert np.array_equal(b, a[:, ::-1] / 2)
    assert np.array_equal(firsts, a[:, 3])


@qn.func
def generic(x, y):
    return x * y + x


@qn.kernel
def uses_generic(ints, floats, out_ints, out_floats):
    i = qn.global_id()
    out_ints[i] = generic(ints[i], ints[i])
    out_floats[i] = generic(floats[i], 2)


@pytest.mark.quernel_needs("f64")
def test_a_device_function_adapts_to_the_types_it_is_called_with(quernel_device: Any) -> None:
    ints, floats = np.array([3, -4, 46341], np.int32), np.array([0.5, 1.5, 1e30], np.float32)
    out_ints, out_floats = np.zeros(3, np.int64), np.zeros(3, np.float64)
    on(quernel_device, uses_generic).over(3)(ints, floats, out_ints, out_floats)
    assert out_ints.tolist() == [12, 12, (46341 * 46341 + 46341) - 2**32]
    assert np.array_equal(out_floats, (floats * np.float32(3)).astype(np.float64))


@qn.kernel
def unrolled(x, out):
    i = qn.global_id()
    total = x[i]
    for k in qn.unroll(range(4)):
        total += x[i] * k
    out[i] = total


def test_an_unrolled_loop_is_the_loop(quernel_device: Any) -> None:
    x = np.array([1, 5, -2], np.int32)
    out = np.zeros(3, np.int64)
    on(quernel_device, unrolled).over(3)(x, out)
    assert out.tolist() == [7, 35, -14]


@qn.kernel
def evaluates_in_order(x, out):
    i = qn.global_id()
    out[i] = x[0] + bump(x) * 10 + x[0] * 100


@qn.func
def bump(x):
    x[0] += 1
    return x[0]


def test_operands_are_evaluated_from_left_to_right(quernel_device: Any) -> None:
    x, out = np.array([3]), np.zeros(1, np.int64)
    on(quernel_device, evaluates_in_order).over(1)(x, out)
    assert out.tolist() == [3 + 40 + 400]


@qn.kernel
def short_circuits(x, flags, out):
    i = qn.global_id()
    out[i] = 0
    if flags[i] and mark(x, i):
        out[i] += 1
    if flags[i] or mark(x, i):
        out[i] += 2
    out[i] += mark(x, i) + 10 if flags[i] else 20


@qn.func
def mark(x, i):
    x[i] += 1
    return x[i] > 0


def test_the_right_side_of_and_and_or_runs_only_when_it_decides(quernel_device: Any) -> None:
    x, flags, out = np.zeros(2, np.int64), np.array([True, False]), np.zeros(2, np.int64)
    on(quernel_device, short_circuits).over(2)(x, flags, out)
    assert x.tolist() == [2, 1]
    assert out.tolist() == [1 + 2 + 1 + 10, 2 + 20]


def written(body: str) -> Any:
    """A kernel `k(x, out)` of a generated body, found as a notebook cell is."""
    text = f"@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n{body}"
    name = f"<generated {zlib.crc32(text.encode())}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"qn": qn}
    exec(compile(text, name, "exec"), namespace)
    return namespace["k"]


@pytest.mark.quernel_needs("f64")
def test_a_sum_of_a_thousand_terms_is_a_sum(quernel_device: Any) -> None:
    out = np.zeros(2)
    on(quernel_device, written("    out[i] = " + " + ".join(["x[i]"] * 1000) + "\n")).over(2)(np.array([1.0, 0.5]), out)
    assert out.tolist() == [1000.0, 500.0]


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("condition", ["x[i] == {}.0", "i == {} and x[i] == {}.0"], ids=["plain", "short-circuit"])
def test_a_chain_of_hundreds_of_branches_takes_one(quernel_device: Any, condition: str) -> None:
    branches = [
        f"    {'if' if n == 0 else 'elif'} {condition.format(n, n)}:\n        out[i] = {n}.5\n" for n in range(200)
    ]
    out = np.zeros(210)
    kernel = written("".join(branches) + "    else:\n        out[i] = -1.0\n")
    on(quernel_device, kernel).over(210)(np.arange(210.0), out)
    assert out.tolist() == [n + 0.5 for n in range(200)] + [-1.0] * 10


@pytest.mark.quernel_needs("f64")
def test_blocks_nested_ninety_deep_run(quernel_device: Any) -> None:
    body = "".join("    " * (n + 1) + f"if x[i] > {n}.0:\n" for n in range(90)) + "    " * 91 + "out[i] = 1.0\n"
    out = np.zeros(100)
    on(quernel_device, written(body)).over(100)(np.arange(100.0), out)
    assert out.tolist() == [0.0] * 90 + [1.0] * 10


@qn.kernel
def mandelbrot(out, limit: int):
    y, x = qn.global_id()
    height, width = qn.global_dim()
    cr = x * 3.0 / width - 2.0
    ci = y * 2.0 / height - 1.0
    zr = 0.0
    zi = 0.0
    n = 0
    while n < limit and zr * zr + zi * zi <= 4.0:
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
        n += 1
    out[y, x] = n


@pytest.mark.quernel_needs("f64", "exact_f64")
def test_a_whole_kernel_agrees_with_python(quernel_device: Any) -> None:
    out = np.zeros((16, 24), np.int32)
    on(quernel_device, mandelbrot.options(contract=False)).over(out.shape)(out, 50)
    expected = np.zeros_like(out)
    for y in range(16):
        for x in range(24):
            c = complex(x * 3.0 / 24 - 2.0, y * 2.0 / 16 - 1.0)
            zr = zi = 0.0
            n = 0
            while n < 50 and zr * zr + zi * zi <= 4.0:
                zr, zi = zr * zr - zi * zi + c.real, 2.0 * zr * zi + c.imag
                n += 1
            expected[y, x] = n
    assert np.array_equal(out, expected)


@qn.kernel
def uses_dtype(x, out):
    i = qn.global_id()
    acc = x.dtype(0)
    for k in range(3):
        acc += x[i] + k
    out[i] = acc


@pytest.mark.parametrize("dtype", [qn.f32, qn.f64, qn.i32, qn.u32], ids=str)
def test_the_dtype_of_an_array_is_a_cast(quernel_device: Any, dtype: Any) -> None:
    x = np.array([1, 2, 250], dtype.numpy)
    out = np.zeros(3, dtype.numpy)
    on(quernel_device, uses_dtype).over(3)(x, out)
    assert out.tolist() == [6, 9, 753]


@qn.kernel
def ranges_of_typed_bounds(starts, stops, out):
    i = qn.global_id()
    total = 0
    for k in range(starts[i], stops[i]):
        total += k + 100
    out[i] = total


@pytest.mark.parametrize("dtype", [qn.i8, qn.i32, qn.u32, qn.i64], ids=str)
def test_ranges_take_bounds_of_any_integer_type(quernel_device: Any, dtype: Any) -> None:
    starts, stops = [0, 3, 5, 2, 100], [4, 3, 1, 9, 104]
    out = np.zeros(5, np.int64)
    on(quernel_device, ranges_of_typed_bounds).over(5)(np.array(starts, dtype.numpy), np.array(stops, dtype.numpy), out)
    assert out.tolist() == [sum(k + 100 for k in range(a, b)) for a, b in zip(starts, stops, strict=True)]


@qn.kernel
def ranges_at_the_edge(out):
    i = qn.global_id()
    count = 0
    last = 0
    for k in range(9223372036854775800, 9223372036854775807, 3):
        count += 1
        last = k
    for k in range(-9223372036854775800, -9223372036854775807, -3):
        count += 10
        last = k
    out[i] = count
    out[i + 1] = last


def test_a_range_up_to_the_last_integers_ends(quernel_device: Any) -> None:
    out = np.zeros(2, np.int64)
    on(quernel_device, ranges_at_the_edge).over(1)(out)
    assert out.tolist() == [33, -9223372036854775806]


@qn.kernel
def weak_parameter(x, out, a, n: int):
    i = qn.global_id()
    out[i] = x[i] * a + n


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize("dtype", [qn.f32, qn.f64, qn.i32], ids=str)
def test_a_number_takes_the_type_of_what_it_meets(quernel_device: Any, dtype: Any) -> None:
    x = np.array([1, 3, 16777217], dtype.numpy)
    out = np.zeros(3)
    on(quernel_device, weak_parameter.options(contract=False)).over(3)(x, out, 3, 1)
    assert np.array_equal(out, (x * dtype.numpy.type(3) + dtype.numpy.type(1)).astype(np.float64))


@pytest.mark.quernel_needs("f64")
def test_a_number_that_does_not_fit_what_it_meets_is_refused(quernel_device: Any) -> None:
    x = np.array([1], np.int32)
    with pytest.raises(qn.errors.KernelTypeError, match="2147483648"):
        on(quernel_device, weak_parameter).over(1)(x, np.zeros(1), 2**31, 1)


SCALE = np.float32(0.1)
LIMIT = 5


class Settings:
    step = 4


@qn.kernel
def captures(x, out):
    i = qn.global_id()
    out[i] = x[i] * SCALE + Settings.step + LIMIT + qn.cdiv(7, 2)


@pytest.mark.quernel_needs("f64")
def test_captured_values_are_constants(quernel_device: Any) -> None:
    x, out = np.array([1.0, 2.0], np.float32), np.zeros(2)
    on(quernel_device, captures.options(contract=False)).over(2)(x, out)
    expected = x * SCALE + np.float32(4) + np.float32(5) + np.float32(4)
    assert np.array_equal(out, expected.astype(np.float64))


LINKS = {
    "choice": "1 < i < (x[i - 1] if i <= len(x) else 5) < 7",
    "function": "1 < i < picked(x, i - 1) <= 9 > picked(x, 1) < i",
    "conversion": "1 < i < qn.f64(x[i - 1] if i > 4 else x[4]) < 7",
    "tuples": "(i, 1) == (x[i], 1) == both(x, i) != both(x, i + 1)",
}


@pytest.mark.quernel_needs("f64")
@pytest.mark.parametrize(
    "is_checked",
    [pytest.param(False, id="unchecked"), pytest.param(True, id="checked", marks=pytest.mark.quernel_needs("checked"))],
)
@pytest.mark.parametrize("name", LINKS)
def test_a_chain_of_comparisons_ends_at_the_first_that_does_not_hold(
    quernel_device: Any, name: str, is_checked: bool
) -> None:
    text = (
        "@qn.func\ndef picked(x, k):\n    return x[k]\n\n\n"
        "@qn.func\ndef both(x, k):\n    return (x[k], 1)\n\n\n"
        "@qn.kernel\ndef k(x, out):\n    i = qn.global_id()\n"
        f"    out[i] = 1000 + ({LINKS[name]})\n"
    )
    kernel = programs.kernel_of(text)
    names = kernel.__wrapped__.__globals__
    x, out = np.array([5, 3, 9, 8, 4, 6, 6, 7]), np.zeros(9, np.int64)
    if name == "tuples":
        x, out = np.array([0, 1, 1, 3, 4, 0, 0]), np.zeros(6, np.int64)
    on(quernel_device, kernel.options(checked=is_checked)).over(len(out))(x, out)
    wanted = [1000 + bool(eval(LINKS[name], {**names, "x": x, "i": i})) for i in range(len(out))]
    assert out.tolist() == wanted
    assert len(set(wanted)) == 2


@qn.kernel
def walks_beside(x, out):
    i = qn.global_id()
    n = len(x)
    left = x[i - 1] if i > 0 else x[n - 1]
    right = x[(i + 1) % n]
    out[i] = left - right


def test_index_arithmetic_stays_in_range(quernel_device: Any) -> None:
    x = np.arange(9, dtype=np.int16) ** 2
    out = np.zeros(9, np.int32)
    on(quernel_device, walks_beside).over(9)(x, out)
    assert out.tolist() == (np.roll(x, 1) - np.roll(x, -1)).tolist()


BRANCHES = {
    "if": "if own > 3:\n    v += y[k]\nelse:\n    v *= y[k + 1]",
    "one side": "if own > 3:\n    v = v * 2 + y[k]",
    "choice": "v = v + y[k] if own > 3 else v * y[k + 1]",
    "and": "if own > 3 and y[k] > 1:\n    v += y[k]\nelse:\n    v *= y[k + 1]",
    "counted": "v += (own > 3) * y[k]",
    "inner loop": "for j in range(n):\n    if own > 3:\n        v += y[j]\n    else:\n        v = y[k]",
    "own length": "for j in range(qn.i64(own)):\n    v = v * 2 + y[k]",
    "function": "v = turned(own, v, y[k])",
    "break": "if own > 3:\n    break\nv = v * 2 + y[k]",
    "break behind": "v = v * 2 + y[k]\nif own > 3:\n    break\nv += 1",
    "continue": "if own > 3:\n    continue\nv = v * 2 + y[k]",
}


@pytest.mark.parametrize(
    "loop", ["for k in range(n):", "for k in range(m[0]):", "k = -1\nwhile k < n - 1:\n    k += 1"]
)
@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("is_grid", [False, True], ids=["over", "grid"])
def test_threads_branch_in_a_loop_by_what_stays_the_same_in_it(
    quernel_device: Any, is_grid: bool, name: str, loop: str
) -> None:
    """What is computed in it is of values that are alike in all threads: only the way tells them apart."""
    body = "".join(f"        {line}\n" for line in BRANCHES[name].splitlines())
    start = "".join(f"    {line}\n" for line in loop.splitlines())
    kernel = programs.kernel_of(
        "@qn.func\ndef turned(x, v, y):\n    if x > 3:\n        return v + y\n    return v * y\n\n\n"
        "@qn.kernel(contract=False)\ndef k(x, y, m, n: int, out):\n    i = qn.global_id()\n"
        "    own = x[i]\n    v = qn.f32(0)\n"
        f"{start}{body}    out[i] = v\n"
    )
    count = 64
    x, y = (np.arange(count) * 5 % 7).astype(np.float32), np.arange(2, 8, dtype=np.float32)
    m, out = np.array([4]), np.zeros(count, np.float32)
    wanted = np.zeros_like(out)
    for device, results in (("reference", wanted), (quernel_device, out)):
        launcher = on(device, kernel)
        (launcher[2, count // 2] if is_grid else launcher.over(count))(x, y, m, 4, results)
    assert out.tolist() == wanted.tolist()
    assert len(set(wanted.tolist())) > 1


# --- what is alike in all threads, where they part ways ---------------------------------------------------------------

FAR = """\
from typing import TypeVar

T = TypeVar("T")


@qn.func
def far(x: T):
    y = x // T(7) + (x % T(13)) * T(5)
    return y - y // T(3)


@qn.func
def either(way, x: T, y: T):
    if way:
        return far(x)
    return far(y)


@qn.kernel
def k(a, b, out, count: qn.{dtype}):
    i = qn.global_id()
    one = qn.{dtype}(1)
    v = one
    w = one
    f = False
"""
MEETINGS = {
    "no loop": """\
if a[i]:
    v = far(count + one)
    w = far(count)
else:
    v = far(count - one)
    w = far(one)
""",
    "a choice": """\
v = far(count + one) if a[i] else far(count - one)
w = far(count) if a[i] else far(one)
""",
    "a truth": """\
if a[i]:
    f = far(count) > one
else:
    f = far(count + one) > one
w = count if f else one
""",
    "in a loop": """\
for j in range(n):
    if a[i]:
        v = far(v + one)
    else:
        v = far(v - count)
""",
    "a truth in a loop": """\
for j in range(n):
    if a[i]:
        f = far(v) > one
    else:
        f = far(v) < one
    v = count if f else v + one
""",
    "loops in a loop": """\
for j in range(n):
    if a[i]:
        for m in range(n):
            v = far(v + one)
    else:
        v = far(v - count)
""",
    "two in a loop": """\
for j in range(n):
    if a[i]:
        v = far(v + one)
        w = v
    else:
        v = far(v - count)
        w = far(v)
""",
    "branches in branches": """\
for j in range(n):
    if a[i]:
        if b[i]:
            v = far(v + one)
        else:
            v = far(one)
    elif b[i]:
        v = far(v - count)
    else:
        w = far(v)
""",
    "what functions give": """\
for j in range(n):
    v = either(a[i], v + one, v - count)
""",
    "calls": """\
for j in range(n):
    if a[i]:
        v, w = far(v + one), far(w)
    else:
        v, w = far(v - count), far(one)
""",
    "what both ways compute": """\
v, w = (far(one), far(count)) if a[i] else (far(count), one)
""",
    "variables of loops": """\
m = 0
if a[i]:
    for m in range(3):
        w = far(w + one)
else:
    for m in range(5):
        w = far(w)
v = far(DTYPE(m) + count)
""",
    "a way out": """\
for j in range(n):
    v = far(v + count)
    if a[i]:
        v = far(v - one)
        break
""",
}


@pytest.mark.parametrize("dtype", [qn.i32, qn.f16, qn.bf16, qn.f32], ids=str)
@pytest.mark.parametrize("meeting", MEETINGS)
def test_threads_that_parted_ways_bring_their_own_of_what_is_alike_in_all(
    quernel_device: Any, meeting: str, dtype: Any
) -> None:
    body = MEETINGS[meeting].replace("range(n)", "range(len(a) // 16)").replace("DTYPE", f"qn.{dtype}")
    kernel = programs.kernel_of(
        FAR.format(dtype=dtype) + textwrap.indent(body, "    ") + "    out[i] = v + w * 3 + (1 if f else 0)\n"
    )
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 2, 64).astype(bool), rng.integers(0, 2, 64).astype(bool)
    found = {}
    for device in ("reference", quernel_device):
        found[device] = np.zeros(64, dtype.numpy)
        on(device, kernel).over(64, block=16)(a, b, found[device], 41)
    assert found[quernel_device].tolist() == found["reference"].tolist()
