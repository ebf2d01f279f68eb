"""Laws of ranges and of index narrowing: values lie within their ranges, and narrowed kernels do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.block_executor import Machine, MisstepError, _Frame, _Thread, arrays_of

from quernel.dtypes import DType
from quernel.ir.bounds import Ranges
from quernel.ir.nodes import Assign, Module
from quernel.ir.parser import parse_module
from quernel.ir.passes import narrow_indices, optimize
from quernel.ir.verifier import verify

MODERATE = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LENGTH = 8
HEADER = """\
kernel k(x: array<i64, 1>, y: array<i64, 1>, n: i64, m: i64 weak in [-3, 9], w: i32, b: u64) grid (4):
    local i, j, k, l, t: i64
    local h: i32
    h = w + 1i32
    k = 0
    l = n
    t = 5
"""
NUMBERS = st.sampled_from(
    [0, 1, 2, 3, 7, 8, 31, 32, 63, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 33, -1, -5, -(1 << 40)]
)


@st.composite
def values(draw: Callable[..., Any], depth: int = 3) -> str:
    """The text of an i64 expression."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        leaves = (
            "i",
            "j",
            "k",
            "l",
            "t",
            "n",
            "m",
            "i64(w)",
            "i64(h)",
            "i64(b)",
            "global_id(0)",
            "local_id(0)",
            "x.shape[0]",
        )
        leaf = draw(st.sampled_from((*leaves, "block_id(0)", "global_dim(0)", "x[local_id(0)]")))
        return draw(st.one_of(st.just(leaf), NUMBERS.map(lambda number: f"({number})")))
    left, right = draw(values(depth - 1)), draw(values(depth - 1))
    op = draw(
        st.sampled_from(
            ["+", "-", "*", "&", "|", "^", "<<", ">>", "//", "%", "min", "max", "neg", "inv", "select", "abs"]
        )
    )
    match op:
        case "min" | "max":
            return f"{op}({left}, {right})"
        case "neg":
            return f"(-({left}))"
        case "inv":
            return f"(~({left}))"
        case "abs":
            return f"abs({left})"
        case "select":
            return f"select({draw(conditions(1))}, {left}, {right})"
        case _:
            return f"(({left}) {op} ({right}))"


@st.composite
def conditions(draw: Callable[..., Any], depth: int = 2) -> str:
    """The text of a bool."""
    op = draw(st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
    return f"(({draw(values(depth))}) {op} ({draw(values(depth))}))"


@st.composite
def indices(draw: Callable[..., Any]) -> str:
    """The text of an index that is inside an array of `LENGTH` elements."""
    value, small = draw(values()), draw(st.sampled_from(["i", "global_id(0)", "local_id(0)"]))
    return draw(
        st.sampled_from(
            [
                f"({value}) % {LENGTH}",
                f"({value}) & {LENGTH - 1}",
                f"{small} + ({value}) - ({value})",
                f"({value}) * 0 + {small}",
                f"min(max({value}, 0), {LENGTH - 1})",
                f"(({value}) ^ ({value})) | {small}",
                f"{small} // 2",
            ]
        )
    )


@st.composite
def kernels(draw: Callable[..., Any]) -> str:
    """The text of a kernel that computes indices."""
    lines = [
        f"    i = {draw(st.sampled_from(['global_id(0)', 'local_id(0) + 4', 'global_id(0) // 2']))}",
        "    j = i * 3",
    ]
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["assign", "store", "store", "if", "for"]))
        if kind == "assign":
            lines.append(f"    {draw(st.sampled_from('jklt'))} = {draw(values())}")
        elif kind == "store":
            lines.append(f"    y[{draw(indices())}] = {draw(values(2))} + x[{draw(indices())}]")
        elif kind == "if":
            lines += [f"    if {draw(conditions())}:", f"        y[{draw(indices())}] = {draw(values(1))}"]
            lines += ["    else:", f"        {draw(st.sampled_from('kl'))} = {draw(values(1))}"]
        else:
            start, stop, step = draw(NUMBERS), draw(st.integers(-4, 9)), draw(st.sampled_from([1, 2, -3, 0]))
            start = start if abs(start) < 99 else 0
            lines += [f"    for t in range({start}, {stop} + m, {step}):", f"        k = k + {draw(values(1))}"]
            lines.append(f"        y[{draw(indices())}] = k")
    return HEADER + "\n".join(lines) + "\n"


def machine(module: Module, n: int, m: int) -> Machine:
    arrays = arrays_of(module, {"x": (LENGTH,), "y": (LENGTH,)})
    return Machine(module, arrays, {"n": n, "m": m, "w": (n % 77) - 30, "b": (1 << 64) - 1 - abs(m)})


ARGUMENTS = st.one_of(NUMBERS, st.integers(-20, 20))


@MODERATE
@given(kernels(), ARGUMENTS, st.integers(-3, 9))
def test_narrowed_kernel_does_the_same(text: str, n: int, m: int) -> None:
    module = verify(parse_module(text))
    wide, narrow = machine(module, n, m), machine(verify(narrow_indices(module)), n, m)
    wide.run()
    narrow.run()
    assert narrow.arrays == wide.arrays


@settings(MODERATE, max_examples=60)
@given(kernels(), ARGUMENTS, st.integers(-3, 9))
def test_narrowed_checked_kernel_does_the_same(text: str, n: int, m: int) -> None:
    checked = optimize(parse_module(text.replace(" grid (4):", " grid (4) with checked:")))
    wide, narrow = machine(checked, n, m), machine(verify(narrow_indices(checked)), n, m)
    wide.run()
    narrow.run()
    assert narrow.arrays == wide.arrays
    assert narrow.violations == wide.violations


class _Watched(_Thread):
    """A thread that compares each value it assigns with its range."""

    ranges: Ranges

    def statement(self, stmt: Any, frame: _Frame) -> Any:
        yield from super().statement(stmt, frame)
        if isinstance(stmt, Assign) and isinstance(stmt.value.type, DType) and not stmt.value.type.is_float:
            interval = self.ranges.local(stmt.name)
            assert interval is not None
            assert interval.least <= int(frame.locals[stmt.name]) <= interval.greatest


@MODERATE
@given(kernels(), values(), ARGUMENTS, st.integers(-3, 9))
def test_values_lie_within_their_ranges(text: str, value: str, n: int, m: int) -> None:
    module = parse_module(f"{text}    t = {value}\n")
    launch = machine(module, n, m)
    ranges = Ranges(module, module.kernel, index32=True)
    for local_id in range(4):
        thread = _Watched(launch, (1,), (local_id,), {})
        thread.ranges = ranges
        try:
            list(thread.kernel())
        except MisstepError:
            return
        last = module.kernel.body[-1]
        assert isinstance(last, Assign)
        interval = ranges.of(last.value)
        assert interval is not None
        assert interval.least <= int(thread.frame.locals["t"]) <= interval.greatest
