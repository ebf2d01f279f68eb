"""The type rules, as tables: promotion, joins, and the types of expressions."""

from __future__ import annotations

import pytest
from tests.unit.lang.kernels import FLOAT, INT, array, kernel_of, lowered, refusal

from quernel.dtypes import SCALARS, ScalarType, bf16, dtype_named, f16, f64, i64
from quernel.lang import promotion

WEAK = {"int": INT, "float": FLOAT}


def scalar(name: str) -> ScalarType:
    """A type by the name that the messages use."""
    return WEAK.get(name) or ScalarType(dtype_named(name))


def shown(type_: ScalarType | None) -> str | None:
    if type_ is None:
        return None
    return next((name for name, weak in WEAK.items() if weak == type_), str(type_.dtype))


ARITHMETIC = [
    ("bool", "bool", "i32"),
    ("i8", "i8", "i32"),
    ("u8", "u8", "i32"),
    ("u8", "i16", "i32"),
    ("u16", "i32", "i32"),
    ("i32", "u32", "i64"),
    ("u8", "u32", "i64"),
    ("u32", "u32", "u32"),
    ("i32", "i64", "i64"),
    ("u32", "i64", "i64"),
    ("u64", "u64", "u64"),
    ("u64", "u8", "u64"),
    ("u64", "u32", "u64"),
    ("u64", "bool", "u64"),
    ("u64", "i8", None),
    ("u64", "i64", None),
    ("i64", "f32", "f32"),
    ("u64", "f32", "f32"),
    ("bool", "f64", "f64"),
    ("f32", "f64", "f64"),
    ("f16", "bf16", "f32"),
    ("f16", "f32", "f32"),
    ("f16", "f16", "f16"),
    ("int", "int", "int"),
    ("int", "float", "float"),
    ("int", "u8", "i32"),
    ("int", "bool", "i32"),
    ("int", "u32", "u32"),
    ("int", "u64", "u64"),
    ("int", "f32", "f32"),
    ("float", "f32", "f32"),
    ("float", "f16", "f16"),
    ("float", "i8", "f64"),
    ("float", "u64", "f64"),
]

JOINS = [
    ("u8", "u8", "u8"),
    ("u8", "i8", "i32"),
    ("i32", "u32", "i64"),
    ("u64", "i32", None),
    ("f32", "f64", "f64"),
    ("int", "u8", "u8"),
    ("int", "f32", "f32"),
    ("int", "float", "float"),
    ("float", "f32", "f32"),
    ("float", "i32", None),
    ("i32", "f32", None),
    ("bool", "bool", "bool"),
    ("bool", "int", None),
    ("bool", "f32", None),
]


@pytest.mark.parametrize(("left", "right", "expected"), ARITHMETIC)
def test_arithmetic_promotes(left: str, right: str, expected: str | None) -> None:
    assert shown(promotion.arithmetic(scalar(left), scalar(right))) == expected
    assert shown(promotion.arithmetic(scalar(right), scalar(left))) == expected


@pytest.mark.parametrize(("left", "right", "expected"), JOINS)
def test_assignments_join_within_one_kind(left: str, right: str, expected: str | None) -> None:
    assert shown(promotion.join(scalar(left), scalar(right))) == expected
    assert shown(promotion.join(scalar(right), scalar(left))) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("u8", "u8", "u8"), ("bool", "bool", "bool"), ("u8", "int", "u8"), ("bool", "int", "i32"), ("u8", "u16", "i32")],
)
def test_bitwise_operators_keep_equal_types(left: str, right: str, expected: str) -> None:
    assert shown(promotion.bitwise(scalar(left), scalar(right))) == expected


EXPRESSIONS = [
    ("1", "i64"),
    ("1.5", "f64"),
    ("True", "bool"),
    ("n", "i64"),
    ("a", "f64"),
    ("n + 1", "i64"),
    ("n / 2", "f64"),
    ("n // 2", "i64"),
    ("n * 1.5", "f64"),
    ("x[0] * a", "f32"),
    ("x[0] + n", "f32"),
    ("x[0] // 2", "f32"),
    ("x[0] ** 2", "f32"),
    ("x[0] ** a", "f32"),
    ("x[0] * 1e30", "f32"),
    ("b[0] + 1", "i32"),
    ("b[0] + b[1]", "i32"),
    ("b[0] & 3", "u8"),
    ("~b[0]", "u8"),
    ("-b[0]", "i32"),
    ("+b[0]", "i32"),
    ("b[0] << 4", "i32"),
    ("b[0] / 2", "f64"),
    ("u[0] << n", "u64"),
    ("u[0] >> qn.i32(n)", "u64"),
    ("1 << u[0]", "u64"),
    ("1 << n", "i64"),
    ("u[0] ** 3", "u64"),
    ("2 ** u[0]", "u64"),
    ("b[0] ** b[1]", "i32"),
    ("u[0] > n", "bool"),
    ("not n", "bool"),
    ("n and a", "f64"),
    ("n or n", "i64"),
    ("x[0] if n else 0", "f32"),
    ("n if n else 0.5", "f64"),
    ("min(b[0], b[1])", "u8"),
    ("min(b[0], 3)", "i32"),
    ("max(b[0], x[0])", "f32"),
    ("max(1, n, u[0])", "u64"),
    ("abs(b[0])", "i32"),
    ("abs(x[0])", "f32"),
    ("int(x[0])", "i64"),
    ("float(x[0])", "f64"),
    ("bool(x[0])", "bool"),
    ("round(x[0])", "i64"),
    ("math.floor(x[0])", "i64"),
    ("math.ceil(b[0])", "i64"),
    ("math.trunc(a)", "i64"),
    ("qn.floor(x[0])", "f32"),
    ("qn.rint(a)", "f64"),
    ("math.sqrt(x[0])", "f32"),
    ("math.sqrt(b[0])", "f64"),
    ("math.sqrt(a) * x[0]", "f32"),
    ("math.atan2(x[0], a)", "f32"),
    ("math.atan2(x[0], b[0])", "f64"),
    ("math.pow(n, 2)", "f64"),
    ("math.isnan(x[0])", "bool"),
    ("math.pi * x[0]", "f32"),
    ("qn.fma(x[0], a, 1)", "f32"),
    ("qn.clamp(x[0], 0, 1)", "f32"),
    ("qn.rsqrt(x[0])", "f32"),
    ("qn.popcount(u[0])", "u64"),
    ("qn.clz(n)", "i64"),
    ("qn.cdiv(n, 4)", "i64"),
    ("qn.cdiv(u[0], 4)", "u64"),
    ("qn.bitcast(x[0], qn.u32)", "u32"),
    ("qn.i8(x[0])", "i8"),
    ("np.float64(2) * x[0]", "f64"),
    ("np.int32(2) + n", "i32"),
    ("qn.global_id()", "i64"),
    ("len(x)", "i64"),
    ("x.shape[0]", "i64"),
    ("x.size", "i64"),
    ("x.ndim", "i64"),
    ("x.dtype(0)", "f32"),
    ("b[0].dtype(x[0])", "u8"),
]


@pytest.mark.parametrize(("source", "expected"), EXPRESSIONS)
def test_local_has_the_type_of_the_expression_assigned_to_it(source: str, expected: str) -> None:
    kernel = kernel_of(f"def kernel(x, b, u, n, a):\n    v = {source}\n")

    expanded = lowered(kernel, b=array("uint8"), u=array("uint64"), n=INT, a=FLOAT)

    assert expanded.type_of("v") == expected


LOCALS = [
    ("v = 0.0\n    v += x[0]", "f32"),
    ("v = 0\n    v += x[0]", "f32"),
    ("v = 0\n    v = 0.5", "f64"),
    ("v = 0\n    for k in range(n):\n        v += k", "i64"),
    ("v = qn.u8(0)\n    v = 5", "u8"),
    ("v = qn.u8(0)\n    v += 5", "i32"),
    ("v = 0\n    w = v\n    for k in range(n):\n        v = w\n        w = x[k]", "f32"),
    ("w = 0\n    v = x[0]\n    for k in range(n):\n        v = w * k\n        w += x[k]", "f32"),
    ("w = 0\n    for k in range(n):\n        v = w * k\n        w += x[k]", "f32"),
    ("v = n", "i64"),
    ("v = n\n    v = qn.i32(1)", "i32"),
    ("v, w = x[0], 1", "f32"),
    ("w = v = x[0]", "f32"),
    ("[v, w] = n, x[0]", "i64"),
    ("for v in range(3):\n        pass", "i64"),
]


@pytest.mark.parametrize(("body", "expected"), LOCALS)
def test_local_joins_its_assignments(body: str, expected: str) -> None:
    expanded = lowered(kernel_of(f"def kernel(x, n):\n    {body}\n"), n=INT)

    assert expanded.type_of("v") == expected


def test_assigned_parameter_becomes_a_local_of_the_joined_type() -> None:
    expanded = lowered(kernel_of("def kernel(x, n):\n    n += 0.5\n    v = n * x[0]\n"), n=INT)

    assert expanded.type_of("v") == "f32"
    assert sorted(str(variable.type) for variable in expanded.module.kernel.locals) == ["f32", "f64"]


def test_conditional_of_two_kinds_is_refused() -> None:
    assert (
        "this is bool on one side and f32 on the other" in refusal("def kernel(x):\n    v = x[0] and x[1] > 0\n").what
    )


BOUNDS = [
    ("x[0] = n", None),
    ("x[0] = n + x[0]", None),
    ("x[n] = n * i[0]", (-(1 << 31), (1 << 31) - 1)),
    ("x[0] = (b[0] & n) + i[0] + n", (0, 255)),
    ("x[0] = (b[0] & n) + (s[0] & n)", (0, 127)),
    ("x[0] = b[0] > n", None),
    ("x[0] = u[0] + n", (0, (1 << 63) - 1)),
    ("x[0] = i[0] + (n + 1)", (-(1 << 31) - 1, (1 << 31) - 2)),
    ("x[0] = i[0] + (1 - n)", (2 - (1 << 31), (1 << 31) + 1)),
    ("x[0] = i[0] + 3 * n", (-715827882, 715827882)),
    ("x[0] = i[0] + -n", (1 - (1 << 31), 1 << 31)),
    ("x[0] = i[0] + ~n", (-(1 << 31), (1 << 31) - 1)),
    ("x[0] = i[0] + n // 2", (-(1 << 32), (1 << 32) - 1)),
    ("x[0] = i[0] + n // -2", (1 - (1 << 32), 1 << 32)),
    ("x[0] = i[0] + (n << 4)", (-(1 << 27), (1 << 27) - 1)),
    ("x[0] = i[0] + (n >> 1)", (-(1 << 32), (1 << 32) - 1)),
    ("x[0] = i[0] + n % 1000", (i64.min, i64.max)),
    ("x[0] = i[0] + (n * n) % 1000", (i64.min, i64.max)),
    ("x[0] = i[0] + (n & 255)", (i64.min, i64.max)),
    ("x[0] = i[0] + min(n, 5)", (-(1 << 31), i64.max)),
    ("x[0] = i[0] + max(5, n)", (i64.min, (1 << 31) - 1)),
    ("x[0] = i[0] + abs(n)", (1 - (1 << 31), (1 << 31) - 1)),
    ("x[0] = i[0] + (n + 1 if n > 2 else n - 1)", (1 - (1 << 31), (1 << 31) - 2)),
    ("m = n\n    m = m + 1\n    x[0] = i[0] * 2.0 + m", None),
    ("x[0] = (n * n) * u[0]", "refused"),
    ("k = n\n    while k > 0:\n        k -= 1\n    x[0] = i[0] + k", "refused"),
    ("x[0] = i[0] + n * len(x)", None),
    ("k = 0\n    while x[k] > 0:\n        k += 1\n    x[0] = i[0] + k", None),
    ("m = n\n    x[0] = i[0] + m", (-(1 << 31), (1 << 31) - 1)),
    ("x[0] = i[0] + (n if n > 0 else 1)", (-(1 << 31), (1 << 31) - 1)),
    ("x[0] = i[0] + (n or 1)", (-(1 << 31), (1 << 31) - 1)),
    ("i[0] = n", None),
]


@pytest.mark.parametrize(("body", "expected"), BOUNDS)
def test_weak_parameter_is_bounded_by_the_types_that_it_meets(
    body: str, expected: tuple[int, int] | str | None
) -> None:
    text = f"def kernel(x, i, b, s, u, n):\n    {body}\n"
    types = {"i": array("int32"), "b": array("uint8"), "s": array("int8"), "u": array("uint64"), "n": INT}
    if expected == "refused":
        error = refusal(text, **types)
        assert "this follows from the parameter `n`, which is an int, and takes" in error.what
        return

    assert lowered(kernel_of(text), **types).parameter("n").bounds == expected


@pytest.mark.parametrize("body", ["n // 2", "n - 3", "2 - 5 * n", "~n", "min(n, 9)", "max(n, -9)", "abs(n)", "n << 2"])
@pytest.mark.parametrize("offset", [0, 1])
def test_bounds_of_a_weak_parameter_are_the_very_last_that_fit(body: str, offset: int) -> None:
    expanded = lowered(kernel_of(f"def kernel(x, s, n):\n    x[0] = s[0] & ({body})\n"), s=array("int8"), n=INT)

    bounds = expanded.parameter("n").bounds
    assert bounds is not None
    for end, outward in zip(bounds, (-1, 1), strict=True):
        if abs(end) > 1 << 40:
            continue
        value = eval(body, {"n": end + offset * outward, "min": min, "max": max, "abs": abs})
        assert (-128 <= value <= 127) == (offset == 0)


def test_typed_parameter_has_no_bounds() -> None:
    expanded = lowered(kernel_of("def kernel(x, b, n):\n    x[0] = b[0] & n\n"), b=array("uint8"), n=ScalarType(i64))

    assert expanded.parameter("n").bounds is None


def test_every_pair_of_types_computes_in_a_type_that_holds_them_or_is_refused() -> None:
    for a in SCALARS:
        for b in SCALARS:
            found = promotion.arithmetic(ScalarType(a), ScalarType(b))
            assert (found is None) == ({"u64"} < {a.name, b.name} and (a.is_signed or b.is_signed))


def test_half_types_are_known_to_the_rules_although_kernels_refuse_them() -> None:
    assert promotion.join(ScalarType(f16), ScalarType(bf16)) == promotion.arithmetic(ScalarType(f16), ScalarType(bf16))
    assert promotion.join(ScalarType(f16), ScalarType(f64)) == ScalarType(f64)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("acc = 2**70\n    acc += x[0]", "f32"),
        ("acc = x[0]\n    acc = 2**70", "f32"),
        ("acc = 2**70\n    acc = acc * 0.5", "f64"),
        ("acc = 2**70\n    if n > 1:\n        acc = 1.5", "f64"),
        ("acc = 2**70 if n > 1 else 1.0", "f64"),
    ],
)
def test_constant_beyond_i64_may_start_a_float_local(body: str, expected: str) -> None:
    expanded = lowered(kernel_of(f"def kernel(x, n):\n    {body}\n    x[0] = acc\n"), n=INT)

    assert expanded.type_of("acc") == expected
