"""Threads as lanes: every way through divergent control, every kind of address, against the interpreter's numbers."""

from __future__ import annotations

import itertools
import linecache
import math
import re
from typing import Any

import attrs
import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, STRIDED, Built, compiler_for, emitted, lowered
from tests.unit.ir_by_hand import array, const, global_id, kernel, store

import quernel as qn
from quernel.dtypes import ArrayType, ScalarType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Compare, CompareOp, If, Module, Stmt
from quernel.lang import expand
from quernel.options import KernelOptions
from quernel_cpu.compiler import CpuCompiler
from quernel_cpu.emission.forms import spmd_form
from quernel_cpu.targets import named_target

WAYS = {
    "scalar": ("scalar", "off", ""),
    "lanes": ("spmd", "off", ""),
    "coarsened": ("spmd", "on", ""),
    "avx2": ("spmd", "on", "x86-64-v3"),
    "sse": ("spmd", "on", "x86-64-v2"),
}
numbers = itertools.count()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> CpuCompiler:
    return compiler_for(*WAYS[request.param])


def module_of(
    body: str,
    form: LaunchForm = LaunchForm.OVER,
    block: tuple[int, ...] = (256,),
    classes: tuple[type, ...] = (),
    **types: Any,
) -> Module:
    """The kernel whose body this is; parameters are the types' names. `classes`: structs that it makes."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    text = f"def k({', '.join(types)}):\n{lines}\n"
    name = f"<lanes {next(numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"qn": qn, "math": math, "__name__": "spmd_kernels"}
    namespace |= {one.__name__: one for one in classes}
    exec(compile(text, name, "exec"), namespace)
    module, _ = expand(
        namespace["k"],
        name="k",
        parameter_types=types,
        constants={},
        form=form,
        block=block,
        options=KernelOptions(),
    )
    return module


A1, F1, A2 = ArrayType(qn.i64, 1), ArrayType(qn.f32, 1), ArrayType(qn.i64, 2)
COUNT = ScalarType(qn.i64)
SIZES = (1, 15, 16, 17, 100)


def collatz(start: int) -> int:
    steps = 0
    while start != 1 and steps < 200:
        start = start // 2 if start % 2 == 0 else 3 * start + 1
        steps += 1
    return steps


@pytest.mark.parametrize("size", SIZES)
def test_lanes_that_loop_for_different_times_each_stop_at_their_own(way: CpuCompiler, size: int) -> None:
    module = module_of(
        """
i = qn.global_id()
x = i + 1
steps = 0
while x != 1 and steps < 200:
    if x % 2 == 0:
        x = x // 2
    else:
        x = 3 * x + 1
    steps += 1
out[i] = steps
""",
        out=A1,
    )
    out = np.full(size, -1, np.int64)
    Built(module, CONTIGUOUS, way).over(size, out)
    assert out.tolist() == [collatz(i + 1) for i in range(size)]


def test_break_continue_and_return_leave_for_one_lane_only(way: CpuCompiler) -> None:
    module = module_of(
        """
i = qn.global_id()
out[i] = -1
if i % 7 == 3:
    return
total = 0
for j in range(20):
    if j == i % 11:
        continue
    if j > i % 13:
        break
    for k in range(j):
        if k * 3 > i:
            break
        total += k
    if total > 100:
        out[i] = -total
        return
    total += j
out[i] = total
""",
        out=A1,
    )

    def wanted(i: int) -> int:
        if i % 7 == 3:
            return -1
        total = 0
        for j in range(20):
            if j == i % 11:
                continue
            if j > i % 13:
                break
            for k in range(j):
                if k * 3 > i:
                    break
                total += k
            if total > 100:
                return -total
            total += j
        return total

    out = np.zeros(77, np.int64)
    Built(module, CONTIGUOUS, way).over(77, out)
    assert out.tolist() == [wanted(i) for i in range(77)]


def test_a_loop_variable_keeps_each_lanes_last_value(way: CpuCompiler) -> None:
    module = module_of(
        """
i = qn.global_id()
last = -1
for j in range(i % 5, 9, 1 + i % 3):
    last = j
    if j * j > i:
        break
out[i] = last
""",
        out=A1,
    )

    def wanted(i: int) -> int:
        last = -1
        for j in range(i % 5, 9, 1 + i % 3):
            last = j
            if j * j > i:
                break
        return last

    out = np.zeros(50, np.int64)
    Built(module, CONTIGUOUS, way).over(50, out)
    assert out.tolist() == [wanted(i) for i in range(50)]


def test_values_that_only_inner_lanes_see_do_not_leak_into_the_next_trip(way: CpuCompiler) -> None:
    module = module_of(
        """
i = qn.global_id()
x = i
total = 0
for trip in range(4):
    while x % 6 != 0:
        x += 1
        total += x
    total += x * trip
    x = x + i % 3
out[i] = total
""",
        out=A1,
    )

    def wanted(i: int) -> int:
        x, total = i, 0
        for trip in range(4):
            while x % 6 != 0:
                x += 1
                total += x
            total += x * trip
            x = x + i % 3
        return total

    out = np.zeros(40, np.int64)
    Built(module, CONTIGUOUS, way).over(40, out)
    assert out.tolist() == [wanted(i) for i in range(40)]


def wide_numbers(least: int, most: int, count: int) -> list[int]:
    """Integers of 64 bits of every length, and those beside powers of two."""
    random = np.random.default_rng(1)
    edges = [sign * (1 << bits) + near for bits in range(64) for near in (-1, 0, 1) for sign in (-1, 1)]
    inside = [number for number in (least, most, *edges) if least <= number <= most]
    lengths = random.integers(1, 65, count - len(inside)).tolist()
    return inside + [
        max(int.from_bytes(random.bytes(8), "little", signed=least < 0) >> (64 - length), least) for length in lengths
    ]


DIVISORS = [3, 7, 10, 641, 10007, 2**31 + 1, 2**32 - 1, 2**33 - 1, 2**51 + 1, 2**62 + 1, 2**63 - 1]


@pytest.mark.parametrize(
    ("of", "least", "most"), [(qn.i64, -(2**63), 2**63 - 1), (qn.u64, 0, 2**64 - 1)], ids=["i64", "u64"]
)
def test_wide_integers_are_divided_exactly(way: CpuCompiler, of: Any, least: int, most: int) -> None:
    divisors = DIVISORS if least < 0 else [*DIVISORS, 2**63 + 1, 2**64 - 1]
    body = "i = qn.global_id()\n" + "".join(
        f"q[{row}, i] = x[i] // qn.{of.name}({divisor})\nr[{row}, i] = x[i] % qn.{of.name}({divisor})\n"
        for row, divisor in enumerate(divisors)
    )
    body += f"q[{len(divisors)}, i] = x[i] // y[i]\nr[{len(divisors)}, i] = x[i] % y[i]\n"
    x = wide_numbers(least, most, 600)
    y = [number or 1 for number in reversed(x)]
    x[-100:], y[-100:] = ([number >> 14 for number in numbers[-100:]] for numbers in (x, y))  # Doubles hold these.
    y = [number if number not in (0, -1) else 5 for number in y]
    given = [np.array(numbers, of.numpy) for numbers in (x, y)]
    q, r = np.zeros((2, len(divisors) + 1, len(x)), of.numpy)
    types = {"x": ArrayType(of, 1), "y": ArrayType(of, 1), "q": ArrayType(of, 2), "r": ArrayType(of, 2)}
    Built(module_of(body, **types), CONTIGUOUS, way).over(len(x), *given, q, r)
    for row, divided in enumerate([*([divisor] * len(x) for divisor in divisors), y]):
        assert q[row].tolist() == [a // b for a, b in zip(x, divided, strict=True)]
        assert r[row].tolist() == [a % b for a, b in zip(x, divided, strict=True)]


def divisions(count: int) -> str:
    """`count` quotients of 64-bit integers by one constant."""
    body = "i = qn.global_id()\nv = x[i]\n" + "v = v * v // 10007\n" * count
    return emitted(module_of(body + "out[i] = v", x=A1, out=A1), compiler_for(*WAYS["avx2"]))


def test_what_divides_by_a_constant_is_one_function_where_it_is_called_often() -> None:
    few, many = divisions(2), divisions(30)
    assert (few.count("alwaysinline"), few.count("noinline")) == (1, 0)
    assert (many.count("alwaysinline"), many.count("noinline")) == (0, 1)


MOVES = """\
i = qn.global_id()
if at[i] % 3 != 1:
    k = at[i] % n
    near = at[k] // 3
    y[near] = x[near] + x[2 * k] + z[near]
    y[2 * near + n] = x[near]
"""


def check_moves(way: CpuCompiler, of: Any, shape: str) -> None:
    size = 200
    random = np.random.default_rng(3)
    steps = {"all": np.zeros(size), "none": np.ones(size), "some": random.integers(0, 3, size)}
    steps["few"] = np.where(np.arange(size) % 19 == 3, 0, 1)
    at = np.argsort(random.random(size)) * 3 + steps[shape].astype(np.int64)
    x, z = random.integers(-9, 9, (2, 4 * size)).astype(of.numpy)
    y, expected = np.zeros((2, 8 * size), of.numpy)
    for i in range(size):
        if at[i] % 3 != 1:
            k = at[i] % size
            near = at[k] // 3
            expected[near], expected[2 * near + size] = x[near] + x[2 * k] + z[near], x[near]
    # Where several threads write one element, all of them write the same.
    Built(moves(of), CONTIGUOUS, way).over(size, x, z, y, at, size)
    assert y.tolist() == expected.tolist()


def moves(of: Any) -> Module:
    return module_of(MOVES, x=ArrayType(of, 1), z=ArrayType(of, 1), y=ArrayType(of, 1), at=A1, n=COUNT)


@pytest.mark.parametrize("shape", ["all", "none", "some", "few"])
@pytest.mark.parametrize("of", [qn.f32, qn.f64, qn.i16])
def test_elements_anywhere_are_moved_by_the_lanes_that_are_on(way: CpuCompiler, of: Any, shape: str) -> None:
    check_moves(way, of, shape)


def compiler_of_processor(name: str) -> CpuCompiler:
    """A compiler for AVX2 as that processor has it."""
    target = compiler_for(*WAYS["avx2"]).target_info
    details = dict(target.details) | {"cpu": name}
    return CpuCompiler(attrs.evolve(target, details=tuple(sorted(details.items()))))


@pytest.mark.skipif(not named_target("").detail("triple").startswith("x86_64"), reason="needs a target with AVX2")
def test_lanes_that_are_on_gather_where_llvm_takes_the_instruction() -> None:
    masked = r"call <\d+ x float> @llvm.masked.gather.* <\d+ x i1> %"
    assert re.search(masked, emitted(moves(qn.f32), compiler_of_processor("skylake")))
    assert not re.search(masked, emitted(moves(qn.f32), compiler_of_processor("znver3")))
    check_moves(compiler_of_processor("skylake"), qn.f32, "some")


@pytest.mark.parametrize("variant", [CONTIGUOUS, STRIDED], ids=["contiguous", "strided"])
@pytest.mark.parametrize(
    "index", ["i", "n - 1 - i", "2 * i", "3 * i + 1", "4 * i", "7 * i", "(i * i) % (8 * n)", "5", "i // 2", "i % 3"]
)
@pytest.mark.parametrize("size", [5, 16, 70])
def test_every_kind_of_address_reads_the_right_elements(way: CpuCompiler, variant: Any, index: str, size: int) -> None:
    module = module_of(f"i = qn.global_id()\nout[i] = x[{index}]", x=A1, out=A1, n=COUNT)
    x = np.arange(8 * size + 8, dtype=np.int64) * 3
    out = np.zeros(size, np.int64)
    Built(module, variant, way).over(size, x, out, size)
    positions = [eval(index, {"i": i, "n": size}) for i in range(size)]
    assert out.tolist() == x[positions].tolist()


@pytest.mark.parametrize("index", ["i", "n - 1 - i", "2 * i", "i // 2", "5"])
def test_every_kind_of_address_is_written_by_the_lanes_that_are_on(
    way: CpuCompiler, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "1")  # Of several threads' values for one element, any may stay.
    module = module_of(f"i = qn.global_id()\nif i % 3 != 1:\n    out[{index}] = i", out=A1, n=COUNT)
    out = np.full(200, -1, np.int64)
    Built(module, CONTIGUOUS, way).over(90, out, 90)
    wanted = np.full(200, -1, np.int64)
    for i in range(90):
        if i % 3 != 1:
            wanted[eval(index, {"i": i, "n": 90})] = i
    assert out.tolist() == wanted.tolist()


def test_lanes_that_are_off_read_nothing_beyond_the_array(way: CpuCompiler) -> None:
    # A page that may not be read lies behind the array.
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    size = 37
    x = np.frombuffer(memory, np.int64, size, page - 8 * size)
    x[:] = np.arange(size)
    out = np.zeros(size, np.int64)
    body = "i = qn.global_id()\nif i < len(x) - 1:\n    out[i] = x[i + 1] + x[len(x) - 1 - i]\nelse:\n    out[i] = x[i]"
    Built(module_of(body, x=A1, out=A1), CONTIGUOUS, way).over(size, x, out)
    assert out.tolist() == [size] * (size - 1) + [size - 1]


@pytest.mark.parametrize("extent", [(1, 1), (7, 5), (8, 16), (9, 33), (20, 100), (3, 1)])
def test_rows_run_together_and_alone(way: CpuCompiler, extent: tuple[int, int]) -> None:
    module = module_of(
        """
row, column = qn.global_id()
total = 0
for k in range(x.shape[0]):
    if (row + column) % 5 == k % 7:
        continue
    total += x[k, column] * (row - k) + x[row, (column + k) % x.shape[1]]
out[row, column] = total
""",
        block=(8, 32),
        x=A2,
        out=A2,
    )
    x = np.random.default_rng(1).integers(-50, 50, extent)
    out = np.zeros(extent, np.int64)
    Built(module, CONTIGUOUS, way).over(extent, x, out)
    wanted = np.zeros(extent, np.int64)
    for row, column in np.ndindex(*extent):
        for k in range(extent[0]):
            if (row + column) % 5 != k % 7:
                wanted[row, column] += x[k, column] * (row - k) + x[row, (column + k) % extent[1]]
    assert np.array_equal(out, wanted)


def test_a_row_whose_lanes_are_all_off_reads_nothing(way: CpuCompiler) -> None:
    module = module_of(
        """
row, column = qn.global_id()
total = 0
for k in range(len(lengths) * 4):
    if k >= lengths[row]:
        break
    total += rows[starts[row] + k]
out[row, column] = total
""",
        block=(8, 32),
        lengths=A1,
        starts=A1,
        rows=A1,
        out=A2,
    )
    lengths = np.array([3, 0, 30, 1, 0, 7, 2, 5, 11], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    rows = np.arange(lengths.sum()) * 3 + 1
    out = np.zeros((9, 40), np.int64)
    Built(module, CONTIGUOUS, way).over((9, 40), lengths, starts, rows, out)
    sums = [rows[s : s + n].sum() for s, n in zip(starts, lengths, strict=True)]
    assert np.array_equal(out, np.repeat(np.array(sums)[:, None], 40, 1))


@pytest.mark.parametrize("block", [(1, 16), (4, 8), (3, 5), (2, 40), (16, 1), (1, 1)])
def test_blocks_of_any_shape_see_their_indices(way: CpuCompiler, block: tuple[int, int]) -> None:
    body = (
        "row, column = qn.global_id()\ni, j = qn.local_id()\nb, c = qn.block_id()\n"
        "out[row, column] = ((i * 100 + j) * 100 + b) * 100 + c"
    )
    module = module_of(body, LaunchForm.GRID, block, out=A2)
    out = np.full((3 * block[0], 2 * block[1]), -1, np.int64)
    Built(module, CONTIGUOUS, way).grid((3, 2), out)
    for (row, column), value in np.ndenumerate(out):
        (b, i), (c, j) = divmod(row, block[0]), divmod(column, block[1])
        assert value == ((i * 100 + j) * 100 + b) * 100 + c


def test_private_arrays_belong_to_their_lane(way: CpuCompiler) -> None:
    module = module_of(
        """
i = qn.global_id()
p = qn.private(5, qn.i64)
for k in range(5):
    p[k] = i * k
p[i % 5] += 1000
out[i] = p[(i + 1) % 5] * 10000 + p[i % 5]
""",
        out=A1,
    )
    out = np.zeros(45, np.int64)
    Built(module, CONTIGUOUS, way).over(45, out)
    assert out.tolist() == [(i * ((i + 1) % 5)) * 10000 + i * (i % 5) + 1000 for i in range(45)]


def test_atomics_reach_one_cell_from_every_lane(way: CpuCompiler) -> None:
    body = "i = qn.global_id()\nif i % 3 != 0:\n    seen[i] = qn.atomic.add(total, i % 4, 1)"
    module = module_of(body, seen=A1, total=A1)
    seen, total = np.full(100, -1, np.int64), np.zeros(4, np.int64)
    Built(module, CONTIGUOUS, way).over(100, seen, total)
    on = [i for i in range(100) if i % 3]
    assert total.tolist() == [sum(1 for i in on if i % 4 == k) for k in range(4)]
    for k in range(4):
        assert sorted(seen[[i for i in on if i % 4 == k]].tolist()) == list(range(total[k]))


def test_no_lane_is_left_to_look_for_in_what_llvm_gets() -> None:
    module = module_of("i = qn.global_id()\ny[i] = x[i] * 2.0 + y[i]", x=F1, y=F1)
    low = lowered(module, CONTIGUOUS, compiler_for("spmd"))
    assert low.is_vector_code
    assert " x float>" in low.ir
    assert not lowered(module, CONTIGUOUS, compiler_for("scalar")).is_vector_code


@pytest.mark.parametrize("of", [qn.bool, qn.u8, qn.i16, qn.f16, qn.f32])
def test_elements_that_nothing_gathers_are_loaded_without_branches(way: CpuCompiler, of: Any) -> None:
    body = "i = qn.global_id()\nif i % 3 != 1:\n    out[i] = x[at[i]]"
    module = module_of(body, x=ArrayType(of, 1), at=A1, out=ArrayType(of, 1))
    at = np.arange(70) * 37 % 70
    at[1::3] = 1 << 60  # Nobody reads there.
    x, out = (np.arange(70) % 2 if of.is_bool else np.arange(70)).astype(of.numpy), np.zeros(70, of.numpy)
    Built(module, CONTIGUOUS, way).over(70, x, at, out)
    assert out.tolist() == [0 if i % 3 == 1 else x[at[i]] for i in range(70)]
    if of.itemsize < 4:
        assert not re.search(r"masked\.gather\.v\d+i(8|16)\b", lowered(module, CONTIGUOUS, way).ir)


def test_what_is_nested_too_deep_for_lanes_runs_as_scalar_code() -> None:
    body: tuple[Stmt, ...] = (store("out", const(7)),)
    for bound in range(80):
        body = (If(condition=Compare(op=CompareOp.GE, left=global_id(), right=const(bound % 3)), then=body),)
    module = kernel((array("out", qn.i64),), body)
    assert spmd_form(module) is None
    out = np.zeros(20, np.int64)
    Built(module, CONTIGUOUS, compiler_for("spmd")).over(20, out)
    assert out.tolist() == [0, 0] + [7] * 18


def chain_of(length: int) -> Module:
    """A chain of so many branches, each of which stores."""
    tests = [f"{'el' * (n > 0)}if x[i] == {n}.0:\n    y[i] += {n}.5" for n in range(length)]
    array = ArrayType(qn.f64, 1)
    return module_of("\n".join(("i = qn.global_id()", *tests, "else:\n    y[i] -= 1")), x=array, y=array)


def test_what_is_left_of_a_row_has_no_copy_for_when_every_lane_is_on() -> None:
    source = lowered(chain_of(4), CONTIGUOUS, compiler_for("spmd", "off", "x86-64-v3")).ir
    steps, tail = re.split(r"^tail\d+:$", source, flags=re.MULTILINE)
    assert re.search(r"^whole\d+:$", steps, re.MULTILINE)
    assert not re.search(r"^whole\d+:$", tail, re.MULTILINE)


def test_code_for_a_chain_of_branches_grows_with_its_length() -> None:
    made = compiler_for("spmd", "off", "x86-64-v3")
    sizes = [emitted(chain_of(length), made).count("\n") for length in (10, 100)]
    assert sizes[1] < 12 * sizes[0]
    assert sizes[1] < 100 * 150
