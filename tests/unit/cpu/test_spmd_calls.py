"""Device functions that stay functions: called with a mask, written for how their arguments lie."""

from __future__ import annotations

import itertools
import linecache
import math
import re
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.cpu.harness import CONTIGUOUS, Built, compiler_for, emitted, lowered
from tests.unit.cpu.test_spmd import A1, A2, WAYS

import quernel as qn
from quernel.dtypes import ArrayType, i64
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Module
from quernel.ir.passes import optimize
from quernel.lang import expand
from quernel.options import KernelOptions
from quernel_cpu.emission import calls
from quernel_cpu.emission.calls import with_few_calls

LANES = [name for name in WAYS if name != "scalar"]
numbers = itertools.count()


@pytest.fixture
def nothing_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function stays one, unless it has to be copied."""
    monkeypatch.setattr(calls, "_MOST_COPIED", 0)
    monkeypatch.setattr(calls, "_TINY", 0)


def module_of(text: str, form: LaunchForm = LaunchForm.OVER, block: tuple[int, ...] = (256,), **types: Any) -> Module:
    """The kernel `k` of a text with its device functions."""
    name = f"<calls {next(numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"qn": qn, "math": math, "__name__": "spmd_calls"}
    exec(compile(text, name, "exec"), namespace)
    made, _ = expand(
        namespace["k"], name="k", parameter_types=types, constants={}, form=form, block=block, options=KernelOptions()
    )
    return made


def chain(length: int) -> Module:
    """f0 calls f1 twice, f1 calls f2 twice, and so on."""
    parts = [f"@qn.func\ndef f{length}(x, s):\n    return x * 3 + s\n"]
    parts += (
        f"@qn.func\ndef f{number}(x, s):\n    y = f{number + 1}(x + {number}, s) % 10007\n"
        f"    if y % 2 == 1:\n        return f{number + 1}(y, s) % 10009\n    return y - s\n"
        for number in reversed(range(length))
    )
    body = "def k(out, s):\n    i = qn.global_id()\n    out[i] = f0(i, s)\n"
    return module_of("\n".join([*parts, body]), out=A1, s=qn.dtypes.ScalarType(i64))


def chain_value(x: int, s: int, number: int, length: int) -> int:
    if number == length:
        return x * 3 + s
    y = chain_value(x + number, s, number + 1, length) % 10007
    return chain_value(y, s, number + 1, length) % 10009 if y % 2 == 1 else y - s


@pytest.mark.parametrize("way", LANES)
def test_functions_that_call_the_next_one_twice_stay_functions(way: str) -> None:
    module, out = chain(8), np.zeros(40, np.int64)
    compiler = compiler_for(*WAYS[way])
    assert lowered(module, CONTIGUOUS, compiler).is_vector_code
    Built(module, CONTIGUOUS, compiler).over(40, out, 5)
    assert out.tolist() == [chain_value(i, 5, 0, 8) for i in range(40)]


def test_code_grows_as_the_chain_does() -> None:
    compiler = compiler_for("spmd")
    lines = [emitted(chain(length), compiler).count("\n") for length in (8, 10, 12, 14)]
    steps = [after - before for before, after in itertools.pairwise(lines)]
    assert steps[-1] <= 2 * max(steps[0], 1) + 200, lines


def test_a_long_chain_is_emitted_in_a_moment() -> None:
    started = time.process_time()
    emitted(chain(20), compiler_for("spmd"))
    assert time.process_time() - started < 20  # With every call copied there would be a million.


def test_a_function_that_is_called_once_is_copied() -> None:
    long = "\n".join(f"    y = y * 3 + {number}" for number in range(800))
    text = f"@qn.func\ndef f(x):\n    y = x\n{long}\n    return y\n\n"
    text += "def k(out):\n    i = qn.global_id()\n    out[i] = f(i)\n"
    assert with_few_calls(optimize(module_of(text, out=A1))).functions == ()


TEXT = """
@qn.func
def inner(x, y, low):
    total = x
    for k in range(y % 5):
        if total > 50:
            return total - low, k
        if k == x % 3:
            continue
        total += x * k
    return total, -1

@qn.func
def outer(a, j, flag, low):
    if flag:
        first, second = inner(a[j], j, low)
        return first + second > low, first
    first, second = inner(j, low, low)
    a[j] = first
    return second < 0, second

def k(a, out, low):
    i = qn.global_id()
    j = len(a) - 1 - i
    if i % 3 == 1:
        return
    met, value = outer(a, i, i % 2 == 0, low)
    other, more = outer(a, j + len(a) * 0, a[i] > 10, 3)
    count = 0
    while value > 0 and count < 4:
        held, value = outer(a, i, False, value)
        if held:
            break
        count += 1
    again, last = inner(low, low, low)
    out[i] = value * 8 + more * 4 + qn.i64(met) + 2 * qn.i64(other) + count * 100 + again + last
"""


@pytest.mark.parametrize("way", LANES)
@pytest.mark.usefixtures("nothing_copied")
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(low=st.integers(-5, 9), size=st.sampled_from((1, 15, 16, 33, 80)), seed=st.integers(0, 1000))
def test_calls_under_masks_give_what_threads_alone_give(way: str, low: int, size: int, seed: int) -> None:
    text = TEXT.replace("j = len(a) - 1 - i", "j = i")  # Each thread keeps to its own element.
    module = cached(text)
    start = np.random.default_rng(seed).integers(-40, 60, size)
    results = []
    for one in ("scalar", way):
        a, out = start.copy(), np.full(size, -1)
        built(module, one).over(size, a, out, low)
        results.append((a.tolist(), out.tolist()))
    assert results[0] == results[1]


_modules: dict[str, Module] = {}
_built: dict[tuple[int, str], Built] = {}


def cached(text: str) -> Module:
    if text not in _modules:
        _modules[text] = module_of(text, a=A1, out=A1, low=qn.dtypes.ScalarType(i64))
    return _modules[text]


def built(module: Module, way: str) -> Built:
    if (id(module), way) not in _built:
        compiler = compiler_for(*WAYS[way])
        low = lowered(module, CONTIGUOUS, compiler)
        assert ("q.lanes" in low.ir) == (way != "scalar")
        _built[id(module), way] = Built(module, CONTIGUOUS, compiler)
    return _built[id(module), way]


@pytest.mark.parametrize("way", LANES)
@pytest.mark.usefixtures("nothing_copied")
@pytest.mark.parametrize("extent", [(1, 1), (7, 5), (20, 50)])
def test_rows_whose_lanes_are_all_off_do_not_call(way: str, extent: tuple[int, int]) -> None:
    text = """
@qn.func
def picked(x, at, row):
    return x[at[row]] + row

def k(x, at, out):
    row, column = qn.global_id()
    total = column
    for k in range(6):
        if at[row] >= 0:
            total += picked(x, at, row) * k
        if at[(row + k) % len(at)] < 0:
            break
    if at[row] >= 0:
        total += picked(x, at, row)
    out[row, column] = total
"""
    module = module_of(text, block=(8, 32), x=A1, at=A1, out=A2)
    at = np.where(np.arange(extent[0]) % 3 == 1, -(1 << 60), np.arange(extent[0]) % 4)
    x = np.arange(4) * 10
    results = []
    for one in ("scalar", way):
        out = np.zeros(extent, np.int64)
        Built(module, CONTIGUOUS, compiler_for(*WAYS[one])).over(extent, x, at, out)
        results.append(out.tolist())
    assert results[0] == results[1]


@pytest.mark.usefixtures("nothing_copied")
def test_what_callers_agree_on_is_scalar_in_the_function() -> None:
    text = """
@qn.func
def f(x, y, n):
    return x[n] * y + n

def k(x, out, n):
    i = qn.global_id()
    out[i] = f(x, out[i], n) + f(x, out[i], n + 1) + f(x, i, i)
"""
    compiler = compiler_for("spmd", "off")
    low = lowered(module_of(text, x=A1, out=A1, n=qn.dtypes.ScalarType(i64)), CONTIGUOUS, compiler)
    heads = sorted(re.findall(r"define internal <\d+ x i64> @q\.lanes\d+\(([^)]*)\)", low.ir))
    width = compiler.target_info.subgroup_size
    mask = f"i{width} %mask, "
    assert sorted({head.removeprefix(mask) for head in heads}) == [
        f"ptr %a0, i64 %a0.stride0, <{width} x i64> %a1, i64 %a2",  # for the two calls that agree on n
        "ptr %a0, i64 %a0.stride0, i64 %a1, i64 %a2",  # for i, which grows with the lane
    ]
    assert "masked.gather" not in low.ir


@pytest.mark.parametrize("way", LANES)
@pytest.mark.usefixtures("nothing_copied")
def test_functions_reach_shared_memory_ids_and_atomics(way: str) -> None:
    text = """
@qn.func
def place(tile, own):
    qn.atomic.add(tile, qn.local_id() % 3, own)
    return qn.global_id() * 2 + qn.block_dim()

def k(out):
    tile = qn.shared(3, qn.i32)
    t = qn.local_id()
    if t < 3:
        tile[t] = 0
    qn.barrier()
    value = qn.i64(0)
    if t % 4 != 2:
        value = place(tile, qn.i32(t)) + place(tile, qn.i32(1))
    qn.barrier()
    out[qn.global_id()] = value * 1000 + tile[t % 3]
"""
    module = module_of(text, LaunchForm.GRID, (40,), out=A1)
    results = []
    for one in ("scalar", way):
        out = np.zeros(120, np.int64)
        Built(module, CONTIGUOUS, compiler_for(*WAYS[one])).grid(3, out)
        results.append(out.tolist())
    assert results[0] == results[1]


@pytest.mark.usefixtures("nothing_copied")
def test_a_function_that_is_handed_a_private_array_is_copied() -> None:
    text = """
@qn.func
def last(p):
    return p[1]

@qn.func
def sum(p):
    return p[0] + last(p) + last(p)

def k(out):
    i = qn.global_id()
    p = qn.private(2, qn.i64)
    p[0] = i
    p[1] = i * i
    out[i] = sum(p) + sum(p)
"""
    module = module_of(text, out=A1)
    assert with_few_calls(optimize(module)).functions == ()
    out = np.zeros(30, np.int64)
    Built(module, CONTIGUOUS, compiler_for("spmd")).over(30, out)
    assert out.tolist() == [2 * (i + 2 * i * i) for i in range(30)]


@pytest.mark.parametrize("of", [qn.bool, qn.i8, qn.u16, qn.f16, qn.bf16, qn.f32, qn.f64, qn.u64])
@pytest.mark.parametrize("way", LANES)
@pytest.mark.usefixtures("nothing_copied")
def test_values_of_every_type_go_in_and_come_out(way: str, of: Any) -> None:
    text = """
@qn.func
def chosen(x, y, i):
    if i % 3 == 0:
        return y, x
    return x, y

def k(a, b, out):
    i = qn.global_id()
    one, other = chosen(a[i], b[i], i)
    more, rest = chosen(other, one, i + 1)
    if i % 2 == 0:
        out[i] = more
    else:
        out[i] = rest
"""
    array = ArrayType(of, 1)
    module = module_of(text, a=array, b=array, out=array)
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(0, 2 if of.is_bool else 100, 50).astype(np.uint16 if of is qn.bf16 else of.numpy) for _ in "ab"
    )
    results = []
    for one in ("scalar", way):
        out = np.zeros_like(a)
        Built(module, CONTIGUOUS, compiler_for(*WAYS[one])).over(50, a, b, out)
        results.append(out.tolist())
    assert results[0] == results[1]
