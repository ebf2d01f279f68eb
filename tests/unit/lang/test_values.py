"""What kernels compute: their IR, run node by node, against Python's meaning and the language's own rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.lang.kernels import array, kernel_of, run

from quernel.geometry import LaunchForm
from quernel.ir.walk import bodies
from quernel.lang import expand
from quernel.options import KernelOptions

I32_MIN = -(1 << 31)


def computed(body: str, *inputs: object, out: str = "float64", size: int = 1) -> list[object]:
    """What a kernel with this body and the inputs `a`, `b`, … writes to `out`."""
    names = ["a", "b", "c", "d"][: len(inputs)]
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    kernel = kernel_of(f"def kernel({', '.join(['out', *names])}):\n{lines}\n")
    result = np.zeros(size, out)
    run(kernel, 1, result, *(np.array(value) if isinstance(value, list) else value for value in inputs))
    return list(result.tolist())


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


OVER = "i = qn.global_id()\n"


@pytest.mark.parametrize(
    ("expression", "inputs", "out", "expected"),
    [
        ("a[0] // b[0]", (i32(-7), i32(2)), "int32", -4),
        ("a[0] // b[0]", (i32(7), i32(-2)), "int32", -4),
        ("a[0] // b[0]", (i32(-1), i32(2)), "int32", -1),
        ("a[0] % b[0]", (i32(-5), i32(3)), "int32", 1),
        ("a[0] // b[0]", (i32(5), i32(0)), "int32", 0),
        ("a[0] % b[0]", (i32(5), i32(0)), "int32", 0),
        ("a[0] // b[0]", (i32(I32_MIN), i32(-1)), "int32", I32_MIN),
        ("1 << a[0]", (i32(40),), "int32", 0),
        ("a[0] >> b[0]", (i32(-8), i32(40)), "int32", -1),
        ("a[0] << b[0]", (i32(3), i32(-2)), "int32", 3),
        ("a[0] << b[0]", (i32(3), np.array([1 << 40])), "int32", 0),
        ("a[0] >> b[0]", (i32(-3), np.array([1 << 40], np.uint64)), "int32", -1),
        ("a[0] << b[0]", (i32(3), np.array([-(1 << 40)])), "int32", 3),
        ("a[0] < 5", (np.array([40000], np.uint16),), "bool", False),
        ("a[0] > b[0]", (i32(-1), np.array([0], np.uint32)), "bool", False),
        ("a[0] + b[0]", (np.array([250], np.uint8), np.array([10], np.uint8)), "int32", 260),
        ("a[0] + b[0]", (np.array([250], np.uint8), np.array([10], np.uint8)), "uint8", 4),
        ("qn.f64(a[0])", (np.array([200], np.uint8),), "float64", 200.0),
        ("qn.u32(a[0])", (np.array([3e9]),), "uint32", 3000000000),
        ("qn.i32(a[0])", (np.array([np.nan], np.float32),), "int32", 0),
        ("qn.i8(a[0])", (np.array([1e30], np.float32),), "int8", 127),
        ("qn.u16(a[0])", (np.array([-1e30], np.float32),), "uint16", 0),
        ("a[0] >= a[0] - 4999 + 5000", (np.array([1_700_000_000_000_000_000], np.uint64),), "bool", False),
        ("a[0] > b[0]", (np.array([5], np.uint64), np.array([-1])), "bool", True),
        ("b[0] < a[0]", (np.array([5], np.uint64), np.array([-1])), "bool", True),
        ("a[0] == b[0]", (np.array([2**64 - 1], np.uint64), np.array([-1])), "bool", False),
        ("a[0] != b[0]", (np.array([2**64 - 1], np.uint64), np.array([-1])), "bool", True),
        ("a[0] < 2**70", (i32(1),), "bool", True),
        ("-(2**70) > a[0]", (i32(1),), "bool", False),
        ("a[0] == 16777217", (np.array([16777216], np.float32),), "bool", False),
        ("a[0] == b[0]", (np.array([16777216], np.float32), i32(16777217)), "bool", False),
        ("a[0] == b[0]", (np.array([2**53 + 1]), np.array([2.0**53])), "bool", False),
        ("a[0] > b[0]", (np.array([2**53 + 1]), np.array([2.0**53])), "bool", True),
        ("b[0] < a[0]", (np.array([2**53 + 1]), np.array([2.0**53])), "bool", True),
        ("a[0] < b[0]", (np.array([2**63 - 1]), np.array([2.0**63])), "bool", True),
        ("a[0] == b[0]", (np.array([2**64 - 1], np.uint64), np.array([2.0**64], np.float32)), "bool", False),
        ("a[0] != b[0]", (np.array([1]), np.array([np.nan])), "bool", True),
        ("a[0] >= b[0]", (np.array([1]), np.array([np.nan])), "bool", False),
        ("a[0] < 2**53 + 1", (np.array([2.0**53]),), "bool", True),
        ("a[0] <= -(10**400)", (np.array([-np.inf]),), "bool", True),
        ("a[0] == 0.1", (np.array([0.1], np.float32),), "bool", True),
        ("min(a[0], b[0])", (np.array([np.nan]), np.array([1.0])), "float64", math.nan),
        ("min(b[0], a[0])", (np.array([np.nan]), np.array([1.0])), "float64", 1.0),
        ("max(a[0], 2, b[0])", (np.array([1.0]), np.array([3.0])), "float64", 3.0),
        ("round(a[0])", (np.array([0.5]),), "int64", 0),
        ("round(a[0])", (np.array([1.5]),), "int64", 2),
        ("round(a[0])", (np.array([2.5]),), "int64", 2),
        ("math.floor(a[0])", (np.array([-2.5]),), "int64", -3),
        ("math.ceil(a[0])", (np.array([-2.5]),), "int64", -2),
        ("math.trunc(a[0])", (np.array([-2.5]),), "int64", -2),
        ("int(a[0])", (np.array([-2.5]),), "int64", -2),
        ("a[0] / b[0]", (i32(7), i32(2)), "float64", 3.5),
        ("a[0] // 2", (np.array([-7.5]),), "float64", -4.0),
        ("a[0] % 3", (np.array([-7.5]),), "float64", 1.5),
        ("a[0] ** 2", (np.array([3], np.float32),), "float64", 9.0),
        ("a[0] ** 3", (i32(-3),), "int32", -27),
        ("a[0] ** b[0]", (np.array([3], np.uint32), np.array([4], np.uint32)), "int64", 81),
        ("2 ** 10 + 7 // 2 - -7 % 3 + (1 << 4 >> 1) + (6 & 3 | 8 ^ 1)", (), "int64", 1024 + 3 - 2 + 8 + 11),
        ("~a[0]", (np.array([1], np.uint8),), "int32", 254),
        ("-a[0]", (np.array([1], np.uint8),), "int32", -1),
        ("-a[0]", (np.array([1], np.uint32),), "int64", 2**32 - 1),
        ("abs(a[0])", (np.array([-128], np.int8),), "int32", 128),
        ("abs(a[0])", (np.array([-0.0]),), "float64", 0.0),
        ("qn.cdiv(a[0], 4)", (np.array([9], np.uint32),), "int64", 3),
        ("qn.cdiv(a[0], 3)", (i32(9),), "int64", 3),
        ("qn.clamp(a[0], 0, 1)", (np.array([7.5], np.float32),), "float64", 1.0),
        ("qn.popcount(a[0])", (np.array([255], np.uint8),), "int64", 8),
        ("qn.clz(a[0])", (i32(1),), "int64", 31),
        ("qn.ctz(a[0])", (i32(0),), "int64", 32),
        ("qn.bitcast(a[0], qn.u32)", (np.array([1.0], np.float32),), "int64", 0x3F800000),
        ("qn.fma(a[0], a[0], -1)", (np.array([1 + 2**-30]),), "float64", 2**-29 + 2**-60),
        ("divmod(a[0], 3)[0] * 10 + divmod(a[0], 3)[1]", (i32(-7),), "int64", -28),
        ("0 < a[0] < 5 < 9", (i32(3),), "bool", True),
        ("0 < a[0] < 5 < 9", (i32(7),), "bool", False),
        ("a[0] and b[0]", (i32(0), i32(7)), "int64", 0),
        ("a[0] and b[0]", (i32(3), i32(7)), "int64", 7),
        ("a[0] or b[0]", (i32(0), i32(7)), "int64", 7),
        ("a[0] or b[0] or 9", (i32(0), i32(0)), "int64", 9),
        ("not a[0]", (i32(0),), "bool", True),
        ("a[0] if b[0] > 2 else -1", (i32(4), i32(3)), "int64", 4),
        ("len(a) + a.shape[-1] + a.ndim + a.size + len(a.shape)", (i32(4, 5, 6),), "int64", 11),
        ("True + True", (), "int64", 2),
        ("a[0] + (a[0] > 0)", (np.array([1.5], np.float32),), "float64", 2.5),
        ("math.copysign(1, a[0])", (np.array([-0.0]),), "float64", -1.0),
        ("math.degrees(a[0])", (np.array([math.pi]),), "float64", 180.0),
        ("math.inf - a[0]", (np.array([1.0]),), "float64", math.inf),
        ("1 / 0", (), "float64", math.inf),
        ("1 // 0 + 1 % 0", (), "int64", 0),
        ("qn.floor(-0.5) + qn.ceil(0.5) + qn.rint(2.5) + qn.trunc(-1.5)", (), "float64", 1.0),
    ],
)
def test_expression_computes(expression: str, inputs: tuple[object, ...], out: str, expected: object) -> None:
    (found,) = computed(f"out[0] = {expression}", *inputs, out=out)

    assert found == expected or (found != found and expected != expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_quotient_and_remainder_make_the_dividend(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = [value for value in (int(info.min), -7, -1, 1, 3, 7, int(info.max)) if value >= info.min]
    pairs = [(a, b) for a in values for b in values if b != 0]
    a, b = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    body = "for k in range(len(a)):\n    out[k] = (a[k] // b[k]) * b[k] + a[k] % b[k]"

    assert computed(body, a, b, out=dtype, size=len(pairs)) == a.tolist()


def test_range_variable_keeps_its_value_for_a_while_loop_that_follows() -> None:
    body = """
for i in range(2):
    out[0] += 1
while i < 5:
    i += 1
    out[0] += 10
out[1] = i
"""
    assert computed(body, out="int64", size=2) == [42, 5]


def test_assigning_the_range_variable_does_not_change_the_flow() -> None:
    body = """
for i in range(3):
    out[0] += 1
    i = 10
out[1] = i
"""
    assert computed(body, out="int64", size=2) == [3, 10]


def test_short_circuit_does_not_read_what_python_would_not_read() -> None:
    body = """
n = len(a)
i = 5
if i < n and a[i] > 0:
    out[0] = 1
if i >= n or a[i] > 0:
    out[1] = 1
out[2] = a[i] if i < n else 7
if 0 <= i < n < a[i]:
    out[3] = 1
"""
    assert computed(body, i32(1, 2), out="int64", size=4) == [0, 1, 7, 0]


def test_return_leaves_from_inside_nested_loops() -> None:
    body = """
while True:
    for i in range(3):
        for j in range(3):
            out[0] = i * 10 + j
            if i * j == 1:
                return
"""
    assert computed(body, out="int64") == [11]


def test_continue_in_a_while_loop_tests_again() -> None:
    body = """
k = 0
while k < 5:
    k += 1
    if k % 2:
        continue
    out[0] += k
"""
    assert computed(body, out="int64") == [6]


def test_augmented_element_evaluates_its_index_once() -> None:
    body = """
a[a[0]] += 5
out[0] = a[0]
out[1] = a[1]
"""
    assert computed(body, i32(0, 9), out="int64", size=2) == [5, 9]


def test_swap_takes_both_values_first() -> None:
    body = """
x, y = 1, 2
x, y = y, x
a[0], a[1] = a[1], a[0]
out[0] = x * 10 + y
out[1] = a[0] * 10 + a[1]
"""
    assert computed(body, i32(3, 4), out="int64", size=2) == [21, 43]


def test_shapes_and_ids_unpack() -> None:
    kernel = kernel_of(
        "def kernel(a, out):\n"
        "    i, j = qn.global_id()\n"
        "    h, w = a.shape\n"
        "    n, m = qn.global_dim()\n"
        "    out[i, j] = a[h - 1 - i, w - 1 - j] + qn.global_id(1) - j + qn.global_id(axis=-1) - j + n - h + m - w\n"
    )
    a = np.arange(6, dtype=np.int32).reshape(2, 3)
    out = np.zeros_like(a)

    run(kernel, (2, 3), a, out)

    assert out.tolist() == a[::-1, ::-1].tolist()


def test_unrolled_loop_writes_its_body_out_with_constants() -> None:
    body = """
for k in qn.unroll(range(4)):
    if k > 0:
        out[k - 1] = 2 ** k
    else:
        out[3] = 99
out[0] += k * 100
"""
    assert computed(body, out="int64", size=4) == [302, 4, 8, 99]


def test_unrolled_loop_may_assign_its_variable() -> None:
    body = """
for k in qn.unroll(range(3)):
    k = k * 2
    out[0] += k
"""
    assert computed(body, out="int64") == [6]


def test_long_elif_chain_runs_and_keeps_the_ir_flat() -> None:
    links = "".join(f"elif n == {k}:\n    out[0] = {k * 3}\n" for k in range(1, 1000))
    body = f"n = a[0]\nif n == 0:\n    out[0] = -1\n{links}else:\n    out[0] = -2\n"
    kernel_text = "def kernel(out, a):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    kernel = kernel_of(kernel_text)

    for given, expected in ((0, -1), (1, 3), (23, 69), (24, 72), (25, 75), (500, 1500), (999, 2997), (1000, -2)):
        out = np.zeros(1, np.int64)
        run(kernel, 1, out, i32(given))
        assert out[0] == expected


def shape_of(num_links: int, *, checked: bool) -> tuple[int, int]:
    """How many statements a chain of branches on loads has in the IR, and how deep they nest."""
    links = "".join(
        f"    {'if' if k == 0 else 'elif'} x[i] > {k} and y[i] > {k}:\n        y[i] = {k}\n" for k in range(num_links)
    )
    module, _ = expand(
        kernel_of(f"def kernel(x, y):\n    i = qn.global_id()\n{links}"),
        name="kernel",
        parameter_types={"x": array("float32"), "y": array("float32")},
        constants={},
        form=LaunchForm.OVER,
        block=(256,),
        options=KernelOptions(checked=checked),
    )
    count, deepest = 0, 0
    pending = [(stmt, 1) for stmt in module.kernel.body]
    while pending:
        stmt, depth = pending.pop()
        count, deepest = count + 1, max(deepest, depth)
        pending.extend((inner, depth + 1) for body in bodies(stmt) for inner in body)
    return count, deepest


@pytest.mark.parametrize("checked", [False, True])
def test_chain_of_branches_on_loads_grows_in_length_and_not_in_depth(checked: bool) -> None:
    (short, short_depth), (long, long_depth) = (shape_of(n, checked=checked) for n in (250, 1000))

    assert long_depth == short_depth < 100
    assert 3.9 * short < long < 4.1 * short


def test_long_operator_chain_runs() -> None:
    chain = " + ".join(f"a[{k % 3}]" for k in range(1000))

    assert computed(f"out[0] = {chain}", i32(1, 2, 3), out="int64") == [334 + 333 * 2 + 333 * 3]


def test_long_comparison_and_boolean_chains_run() -> None:
    ands = " and ".join(f"a[0] > {k}" for k in range(300))
    compared = " < ".join(f"a[0] * {k}" for k in range(200))

    assert computed(f"out[0] = {ands}\nout[1] = {compared}", i32(300), out="bool", size=2) == [True, True]


def test_store_wraps_integers_and_rounds_floats() -> None:
    kernel = kernel_of(
        "def kernel(b, f, n):\n    b[0] = n\n    b[1] = 300\n    b[2] = -1\n    f[0] = 0.1\n    f[1] = n\n"
    )
    b, f = np.zeros(3, np.uint8), np.zeros(2, np.float32)

    run(kernel, 1, b, f, 16777217)

    assert b.tolist() == [1, 44, 255]
    assert f.tolist() == [np.float32(0.1), 16777216.0]


def test_bool_elements_store_truth() -> None:
    assert computed("out[0] = a[0] > 1\nout[1] = bool(a[0])\nout[2] = True", i32(2), out="bool", size=3) == [True] * 3


def test_assigned_parameter_keeps_the_argument_apart() -> None:
    kernel = kernel_of("def kernel(out, n):\n    while n > 2:\n        n -= 1\n    out[0] = n\n")
    out = np.zeros(1, np.int64)

    run(kernel, 1, out, 9)

    assert out[0] == 2
