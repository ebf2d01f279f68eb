"""Laws of the frontend: type rules, integer arithmetic and comparison, Python's flow and order of evaluation."""

from __future__ import annotations

import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.lang.kernels import kernel_of, lowered, run, type_of_argument

from quernel.dtypes import BY_NAME, SCALARS, DType, ScalarType, u64
from quernel.errors import KernelTypeError
from quernel.lang import promotion

TYPES = st.sampled_from(
    [*(ScalarType(dtype) for dtype in SCALARS), promotion.WEAK_INT, promotion.WEAK_FLOAT],
)
INTEGERS = [dtype for dtype in SCALARS if dtype.is_integer]


@given(TYPES, TYPES)
def test_rules_do_not_depend_on_the_order_of_two(a: ScalarType, b: ScalarType) -> None:
    assert promotion.arithmetic(a, b) == promotion.arithmetic(b, a)
    assert promotion.bitwise(a, b) == promotion.bitwise(b, a)
    assert promotion.join(a, b) == promotion.join(b, a)


@given(TYPES)
def test_assigning_one_type_keeps_it(a: ScalarType) -> None:
    assert promotion.join(a, a) == a


@given(TYPES, TYPES, TYPES)
def test_join_does_not_depend_on_the_order_of_three(a: ScalarType, b: ScalarType, c: ScalarType) -> None:
    if u64 in (a.dtype, b.dtype, c.dtype):
        return

    def both(x: ScalarType | None, y: ScalarType | None) -> ScalarType | None:
        return promotion.join(x, y) if x is not None and y is not None else None

    orders = {both(both(a, b), c), both(a, both(b, c)), both(both(a, c), b)}
    assert len(orders - {None}) <= 1


@given(TYPES, TYPES)
def test_weak_types_never_change_what_they_meet_but_by_kind(a: ScalarType, b: ScalarType) -> None:
    found = promotion.arithmetic(a, b)
    if found is None or a.weak or not b.weak:
        return
    assert isinstance(a.dtype, DType)
    assert isinstance(b.dtype, DType)
    if b.dtype.is_integer or a.dtype.is_float:
        assert found.dtype is promotion.widened(a.dtype)


@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
def test_comparison_type_holds_every_value_of_both(a: DType, b: DType) -> None:
    found = promotion.holding_both(a, b)
    if found is None:
        assert u64 in (a, b)
        assert a.is_signed or b.is_signed
    else:
        assert found.min <= min(a.min, b.min)
        assert found.max >= max(a.max, b.max)


@functools.cache
def _binary_kernel(symbol: str, left: str, right: str, out: str) -> types.FunctionType:
    return kernel_of(f"def kernel(out, a, b):\n    for k in range(len(a)):\n        out[k] = a[k] {symbol} b[k]\n")


def _values(dtype: DType) -> st.SearchStrategy[int]:
    edges = [dtype.min, dtype.min + 1, -1, 0, 1, 2, dtype.max - 1, dtype.max]
    return st.sampled_from([value for value in edges if dtype.min <= value <= dtype.max]) | st.integers(
        dtype.min, dtype.max
    )


def _applied(symbol: str, a: DType, b: DType, pairs: list[tuple[Any, Any]], out: DType) -> list[Any]:
    left = np.array([pair[0] for pair in pairs], a.numpy)
    right = np.array([pair[1] for pair in pairs], b.numpy)
    result = np.zeros(len(pairs), out.numpy)
    run(_binary_kernel(symbol, a.name, b.name, out.name), 1, result, left, right)
    return list(result.tolist())


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_integer_arithmetic_is_pythons_modulo_the_width_of_the_promoted_type(data: st.DataObject) -> None:
    a = data.draw(st.sampled_from(INTEGERS))
    b = data.draw(st.sampled_from(INTEGERS))
    symbol = data.draw(st.sampled_from(sorted(ARITHMETIC)))
    rule = promotion.bitwise if symbol in "&|^" else promotion.arithmetic
    promoted = rule(ScalarType(a), ScalarType(b))
    if promoted is None:
        return
    pairs = data.draw(st.lists(st.tuples(_values(a), _values(b)), min_size=1, max_size=8))
    assert isinstance(promoted.dtype, DType)

    found = _applied(symbol, a, b, pairs, promoted.dtype)

    assert found == [promoted.dtype(ARITHMETIC[symbol](*pair)).item() for pair in pairs]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_integer_comparison_is_mathematical(data: st.DataObject) -> None:
    a = data.draw(st.sampled_from(INTEGERS))
    b = data.draw(st.sampled_from(INTEGERS))
    symbol = data.draw(st.sampled_from(sorted(COMPARISONS)))
    pairs = data.draw(st.lists(st.tuples(_values(a), _values(b)), min_size=1, max_size=8))

    assert _applied(symbol, a, b, pairs, BY_NAME["bool"]) == [COMPARISONS[symbol](*pair) for pair in pairs]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(INTEGERS), st.integers(-(2**66), 2**66), st.sampled_from(sorted(COMPARISONS)), st.data())
def test_comparison_with_a_constant_is_mathematical(dtype: DType, known: int, symbol: str, data: st.DataObject) -> None:
    value = data.draw(_values(dtype))
    out = np.zeros(2, np.bool_)

    run(
        kernel_of(f"def kernel(out, a):\n    out[0] = a[0] {symbol} {known}\n    out[1] = {known} {symbol} a[0]\n"),
        1,
        out,
        np.array([value], dtype.numpy),
    )

    assert out.tolist() == [COMPARISONS[symbol](value, known), COMPARISONS[symbol](known, value)]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(["f32", "f64"]), st.sampled_from(sorted(COMPARISONS)), st.data())
def test_comparison_of_integers_with_floats_is_mathematical(
    dtype: DType, name: str, symbol: str, data: st.DataObject
) -> None:
    width = 32 if name == "f32" else 64
    value = data.draw(_values(dtype))
    near = float(BY_NAME[name](value))
    number = data.draw(st.sampled_from([near, near + 0.5, -near]) | st.floats(width=width))
    number = float(BY_NAME[name](number))

    assert _applied(symbol, dtype, BY_NAME[name], [(value, number)], BY_NAME["bool"]) == [
        COMPARISONS[symbol](value, number)
    ]
    assert _applied(symbol, BY_NAME[name], dtype, [(number, value)], BY_NAME["bool"]) == [
        COMPARISONS[symbol](number, value)
    ]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(INTEGERS), st.data())
def test_shift_takes_its_count_by_value(a: DType, b: DType, data: st.DataObject) -> None:
    value, count = data.draw(_values(a)), data.draw(_values(b))
    promoted = promotion.widened(a)
    steps = min(max(count, 0), 64)

    assert _applied("<<", a, b, [(value, count)], promoted) == [promoted(value << steps).item()]
    assert _applied(">>", a, b, [(value, count)], promoted) == [value >> steps]


# --- whole programs ---------------------------------------------------------------------------------------------------

NAMES = ["p", "q", "r"]
LEAVES = st.sampled_from([*NAMES, "0", "1", "-2", "3", "a[0]", "a[3]"])


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    triple = st.tuples(inner, inner, inner)
    return st.one_of(
        pair.map("({0[0]} + {0[1]})".format),
        pair.map("({0[0]} - {0[1]})".format),
        pair.map("({0[0]} * {0[1]} % 97)".format),
        inner.map("({0} // 3)".format),
        inner.map("abs({0})".format),
        pair.map("min({0[0]}, {0[1]})".format),
        inner.map("a[{0} % 4]".format),
        inner.map("bump(a, {0})".format),
        triple.map("({0[0]} if {0[1]} < {0[2]} else {0[1]})".format),
        pair.map("({0[0]} and {0[1]})".format),
        pair.map("({0[0]} or {0[1]})".format),
    )


EXPRESSIONS = st.recursive(LEAVES, _extended, max_leaves=6)
CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(EXPRESSIONS, st.sampled_from(sorted(COMPARISONS)), EXPRESSIONS).map(" ".join),
        st.tuples(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS).map("{0[0]} < {0[1]} <= {0[2]}".format),
        EXPRESSIONS,
    ),
    lambda inner: st.one_of(
        inner.map("(not ({0}))".format),
        st.tuples(inner, inner).map("(({0[0]}) and ({0[1]}))".format),
        st.tuples(inner, inner).map("(({0[0]}) or ({0[1]}))".format),
    ),
    max_leaves=3,
)


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _statements(depth: int, in_loop: bool) -> st.SearchStrategy[list[str]]:
    name = st.sampled_from(NAMES)
    simple = [
        st.tuples(name, EXPRESSIONS).map(lambda t: [f"{t[0]} = {t[1]}"]),
        st.tuples(name, EXPRESSIONS).map(lambda t: [f"{t[0]} += {t[1]} % 5"]),
        st.tuples(EXPRESSIONS, EXPRESSIONS).map(lambda t: [f"p, q = {t[0]}, {t[1]}"]),
        st.tuples(EXPRESSIONS, EXPRESSIONS).map(lambda t: [f"a[{t[0]} % 4] = {t[1]}"]),
        st.tuples(EXPRESSIONS, EXPRESSIONS).map(lambda t: [f"a[{t[0]} % 4] += {t[1]}"]),
        st.just(["a[1], a[2] = a[2], a[1]"]),
    ]
    if in_loop:
        simple += [
            CONDITIONS.map(lambda c: [f"if {c}:", "    break"]),
            CONDITIONS.map(lambda c: [f"if {c}:", "    continue"]),
            CONDITIONS.map(lambda c: [f"if {c}:", "    return"]),
        ]
    if depth == 0:
        return st.one_of(simple)
    inner = _bodies(depth - 1, in_loop)
    loop = _bodies(depth - 1, True)
    return st.one_of(
        *simple,
        st.tuples(CONDITIONS, inner, CONDITIONS, inner, inner).map(
            lambda t: [f"if {t[0]}:", *_indented(t[1]), f"elif {t[2]}:", *_indented(t[3]), "else:", *_indented(t[4])]
        ),
        st.tuples(EXPRESSIONS, loop).map(lambda t: [f"for k in range({t[0]} % 4):", "    p += k", *_indented(t[1])]),
        st.tuples(CONDITIONS, loop).map(
            lambda t: [f"m{depth} = 4", f"while m{depth} > 0 and ({t[0]}):", f"    m{depth} -= 1", *_indented(t[1])]
        ),
    )


def _bodies(depth: int, in_loop: bool) -> st.SearchStrategy[list[str]]:
    return st.lists(_statements(depth, in_loop), min_size=1, max_size=3).map(
        lambda parts: list(itertools.chain(*parts))
    )


@settings(max_examples=100, deadline=None)
@given(_bodies(2, False))
def test_program_of_integers_does_what_python_does(body: list[str]) -> None:
    lines = ["p, q, r = n, 2, -1", *body, "a[4] = p", "a[5] = q", "a[6] = r"]
    text = (
        "@qn.func\ndef bump(a, v):\n    a[v % 4] = (a[v % 4] + 1) % 50\n    return a[v % 4]\n\n"
        + "def kernel(a, n):\n"
        + "\n".join(_indented(lines))
        + "\n"
    )
    kernel = kernel_of(text)
    expected = [1, 2, 3, 4, 0, 0, 0]
    found = np.array(expected)

    kernel(expected, 5)
    run(kernel, 1, found, 5)

    assert found.tolist() == expected


@settings(max_examples=40, deadline=None)
@given(_bodies(2, False))
def test_expanding_twice_gives_equal_ir(body: list[str]) -> None:
    text = "def bump(a, v):\n    return v\nbump = qn.func(bump)\ndef kernel(a, n):\n    p, q, r = n, 2, -1\n"
    kernel = kernel_of(text + "\n".join(_indented(body)) + "\n")
    parameters = {"a": type_of_argument(np.zeros(7, np.int64)), "n": type_of_argument(1)}

    assert lowered(kernel, **parameters).module == lowered(kernel, **parameters).module


# --- floats -----------------------------------------------------------------------------------------------------------

FLOATS = [BY_NAME[name] for name in ("f16", "bf16", "f32", "f64")]
FLOAT_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def _floats(dtype: DType) -> st.SearchStrategy[float]:
    width = 16 if dtype.name == "f16" else 64 if dtype.name == "f64" else 32
    return st.floats(width=width).map(lambda value: float(dtype(value))) | st.sampled_from(
        [0.0, -0.0, 1.0, float(dtype(1 / 3)), float(dtype(65504)), float(dtype(1e-8))]
    )


def _is_same(found: Any, expected: Any) -> bool:
    return bool(found == expected and np.signbit(found) == np.signbit(expected)) or bool(
        found != found and expected != expected
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_float_arithmetic_rounds_once_in_the_promoted_type(data: st.DataObject) -> None:
    a, b = data.draw(st.sampled_from(FLOATS)), data.draw(st.sampled_from(FLOATS))
    symbol = data.draw(st.sampled_from(sorted(FLOAT_ARITHMETIC)))
    x, y = data.draw(_floats(a)), data.draw(_floats(b))
    promoted = promotion.arithmetic(ScalarType(a), ScalarType(b))
    assert promoted is not None
    assert isinstance(promoted.dtype, DType)

    (found,) = _applied(symbol, a, b, [(x, y)], promoted.dtype)

    with np.errstate(all="ignore"):
        left, right = promoted.dtype(x), promoted.dtype(y)
        expected = FLOAT_ARITHMETIC[symbol](left, right)  # NumPy and ml_dtypes round each operation of 16 bits once.
    assert _is_same(float(found), float(expected))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_comparison_of_floats_is_mathematical(data: st.DataObject) -> None:
    a, b = data.draw(st.sampled_from(FLOATS)), data.draw(st.sampled_from(FLOATS))
    symbol = data.draw(st.sampled_from(sorted(COMPARISONS)))
    x = data.draw(_floats(a))
    y = data.draw(_floats(b) | st.just(float(b(x))))

    assert _applied(symbol, a, b, [(x, y)], BY_NAME["bool"]) == [COMPARISONS[symbol](x, y)]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(INTEGERS), st.sampled_from(FLOATS), st.sampled_from(sorted(COMPARISONS)), st.data())
def test_comparison_of_integers_with_any_float_is_mathematical(
    dtype: DType, of: DType, symbol: str, data: st.DataObject
) -> None:
    value = data.draw(_values(dtype))
    number = data.draw(_floats(of) | st.just(float(of(value))))

    assert _applied(symbol, dtype, of, [(value, number)], BY_NAME["bool"]) == [COMPARISONS[symbol](value, number)]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(SCALARS), st.sampled_from(SCALARS), st.data())
def test_cast_in_a_kernel_is_the_cast_on_the_host(source: DType, target: DType, data: st.DataObject) -> None:
    value: Any = data.draw(_floats(source) if source.is_float else st.booleans() if source.is_bool else _values(source))
    given_ = np.array([value], source.numpy)
    out = np.zeros(1, target.numpy)

    run(_cast_kernel(target.name), 1, out, given_)

    with np.errstate(all="ignore"):
        expected = target(given_[0])
    assert _is_same(out[0], expected)


@functools.cache
def _cast_kernel(target: str) -> types.FunctionType:
    return kernel_of(f"def kernel(out, a):\n    out[0] = qn.{target}(a[0])\n")


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["n + {}", "{} - n", "n * {}", "n // {}", "n << {}", "n >> {}", "min(n, {})", "max(n, {})", "-n"]),
    st.integers(-5, 5),
    st.sampled_from(["int8", "uint8", "int32"]),
    st.integers(-(2**34), 2**34),
)
def test_weak_parameter_within_its_bounds_fits_and_beyond_them_does_not(
    form: str, known: int, element: str, n: int
) -> None:
    text = form.format(known if "<<" not in form and ">>" not in form else abs(known))
    if "//" in form and known == 0:
        return
    bounds = _bounds_of(text, element)
    dtype = BY_NAME[{"int8": "i8", "uint8": "u8", "int32": "i32"}[element]]

    value = eval(text, {"n": n, "min": min, "max": max})

    is_within = bounds is not None and bounds[0] <= n <= bounds[1]
    assert is_within == (dtype.min <= value <= dtype.max)


def _bounds_of(text: str, element: str) -> tuple[int, int] | None:
    """The bounds of `n` where `text` meets an element of that type; `None` where no integer fits."""
    types_ = {"out": np.zeros(1, np.int64), "a": np.zeros(1, element), "n": 1}
    kernel = kernel_of(f"def kernel(out, a, n):\n    out[0] = a[0] & ({text})\n")
    try:
        expanded = lowered(kernel, **{name: type_of_argument(value) for name, value in types_.items()})
    except KernelTypeError:
        return None
    return expanded.parameter("n").bounds
