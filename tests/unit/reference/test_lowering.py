"""Statements, functions, positions and threads of the interpreter, on hand-made IR."""

from __future__ import annotations

import bdb
import linecache
import logging
import pickle
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from tests.unit.ir_by_hand import add, equal, less
from tests.unit.reference.builders import GID, Interpreter, array, int_, kernel, load, local, place, store

from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ScalarType, bf16, bool_, f16, f32, f64, i32, i64, u8
from quernel.errors import KernelAssertionError, LaunchError, OutOfBoundsError, ValidationError
from quernel.geometry import LaunchForm
from quernel.identity import KernelId
from quernel.ir.nodes import (
    Alloc,
    ArrayRef,
    Assert,
    Assign,
    Atomic,
    AtomicOp,
    Barrier,
    Binary,
    BinaryOp,
    Break,
    Call,
    Cast,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    LocalVariable,
    Loop,
    Module,
    Param,
    Parameter,
    Return,
    Root,
    RootKind,
    Shape,
    Space,
    Stmt,
    ThreadIndex,
)
from quernel.locations import Location
from quernel.options import KernelOptions


def result_of(interpreter: Interpreter, body: list[Stmt], *names: str, extent: int = 1, **more: Any) -> list[int]:
    """Runs a body that writes its `out: array<i64, 1>`; `names` are i64 locals."""
    module = kernel({"out": array(i64)}, body, locals=dict.fromkeys(names, i64), **more)
    out = np.full(8, -1, np.int64)
    interpreter.run(module, extent, out)
    values: list[int] = out.tolist()
    return values


# --- control flow -----------------------------------------------------------------------------------------------------


def test_a_loop_leaves_its_variable_at_its_last_value(interpreter: Interpreter) -> None:
    body = [
        For(variable="i", start=int_(2), stop=int_(9), step=int_(3), body=()),
        store("out", int_(0), value=local("i")),
    ]
    assert result_of(interpreter, body, "i")[0] == 8


@pytest.mark.parametrize(
    ("start", "stop", "step", "expected"),
    [(0, 4, 1, 4), (4, 0, -1, 4), (0, 4, -1, 0), (0, 5, 2, 3), (0, 5, 0, 0), (3, 3, 1, 0)],
)
def test_a_loop_runs_as_often_as_its_range_is_long(
    interpreter: Interpreter, start: int, stop: int, step: int, expected: int
) -> None:
    module = kernel(
        {"out": array(i64), "step": ScalarType(i64)},
        [
            Assign(name="n", value=int_(0)),
            For(
                variable="i",
                start=int_(start),
                stop=int_(stop),
                step=Param(name="step", type=i64),
                body=(Assign(name="n", value=add(local("n"), int_(1))), Assign(name="i", value=int_(100))),
            ),
            store("out", int_(0), value=local("n")),
        ],
        locals={"n": i64, "i": i64},
    )
    out = np.zeros(1, np.int64)
    interpreter.run(module, 1, out, step)
    assert out[0] == expected


def test_break_continue_and_return_leave_what_they_should(interpreter: Interpreter) -> None:
    count = Assign(name="n", value=add(local("n"), int_(1)))
    body = [
        Assign(name="n", value=int_(0)),
        Loop(
            body=(
                count,
                If(condition=less(local("n"), int_(5)), then=(Continue(),)),
                store("out", int_(0), value=local("n")),
                If(condition=equal(local("n"), int_(7)), then=(Break(),)),
            )
        ),
        store("out", int_(1), value=local("n")),
        Return(),
        store("out", int_(2), value=local("n")),
    ]
    assert result_of(interpreter, body, "n")[:3] == [7, 7, -1]


@pytest.mark.parametrize(("length", "has_statements_between"), [(1500, False), (60, True), (5, True)])
def test_a_chain_of_branches_takes_exactly_one(
    interpreter: Interpreter, length: int, has_statements_between: bool
) -> None:
    third = length // 3
    chain: tuple[Stmt, ...] = (store("out", GID, value=int_(-7)),)
    for number in reversed(range(length)):
        between = (Assign(name="seen", value=int_(number)),) if has_statements_between else ()
        wanted = local("seen") if has_statements_between else int_(number)
        scaled = Binary(op=BinaryOp.MUL, left=GID, right=int_(third))
        branch = If(condition=equal(scaled, wanted), then=(store("out", GID, value=int_(number)),), otherwise=chain)
        chain = (*between, branch)
    assert result_of(interpreter, list(chain), "seen", extent=5)[:3] == [0, third, 2 * third]
    assert result_of(interpreter, list(chain), "seen", extent=5)[4] == (-7 if third * 4 >= length else 4 * third)


def test_a_long_chain_of_branches_is_left_by_break_and_return(interpreter: Interpreter) -> None:
    chain: tuple[Stmt, ...] = ()
    for number in reversed(range(40)):
        chain = (If(condition=equal(GID, int_(number)), then=(Break() if number % 2 else Return(),), otherwise=chain),)
    body = [Loop(body=(*chain, Break())), store("out", GID, value=GID)]
    assert result_of(interpreter, body, extent=5)[:5] == [-1, 1, -1, 3, -1]


def test_a_sum_of_thousands_of_terms_is_right(interpreter: Interpreter) -> None:
    total: Expr = GID
    for _ in range(4000):
        total = add(total, GID)
    assert result_of(interpreter, [store("out", GID, value=total)], extent=3)[:3] == [0, 4001, 8002]


def test_a_condition_too_deep_for_python_is_evaluated_where_it_stands(interpreter: Interpreter) -> None:
    deep: Expr = local("n")
    for _ in range(100):
        deep = add(deep, int_(1))
    body = [
        Assign(name="n", value=int_(0)),
        Loop(
            body=(
                If(condition=less(int_(102), deep), then=(Break(),)),
                Assign(name="n", value=add(local("n"), int_(1))),
            )
        ),
        store("out", int_(0), value=local("n")),
    ]
    assert result_of(interpreter, body, "n")[0] == 3


# --- functions --------------------------------------------------------------------------------------------------------


def test_a_device_function_gives_its_results_and_writes_arrays(interpreter: Interpreter) -> None:
    function = Function(
        name="divide",
        params=(
            Parameter(name="a", type=ScalarType(i64)),
            Parameter(name="b", type=ScalarType(i64)),
            Parameter(name="log", type=array(i64)),
        ),
        results=(i64, i64),
        locals=(LocalVariable(name="a", type=i64),),  # hides the parameter of that name
        body=(
            Assign(name="a", value=add(Param(name="a", type=i64), int_(1))),
            store("log", int_(7), value=Shape(param="log", axis=0)),
            Return(
                values=(
                    Binary(op=BinaryOp.FLOORDIV, left=local("a"), right=Param(name="b", type=i64)),
                    Binary(op=BinaryOp.MOD, left=Param(name="a", type=i64), right=Param(name="b", type=i64)),
                )
            ),
        ),
    )
    call = Call(
        results=("q", "r"),
        function="divide",
        arguments=(int_(19), int_(5), ArrayRef(root=Root(RootKind.PARAM, "out"), type=array(i64))),
    )
    body = [call, store("out", int_(0), value=local("q")), store("out", int_(1), value=local("r"))]
    assert result_of(interpreter, body, "q", "r", functions=(function,)) == [4, 4, -1, -1, -1, -1, -1, 8]


def test_scalars_of_every_kind_arrive_whole(interpreter: Interpreter) -> None:
    module = kernel(
        {
            "flag": ScalarType(bool_),
            "small": ScalarType(u8),
            "half": ScalarType(f16),
            "x": ScalarType(f32),
            "out": array(f64),
        },
        [
            store("out", int_(0), value=Cast(operand=Param(name="flag", type=bool_), type=f64)),
            store("out", int_(1), value=Cast(operand=Param(name="small", type=u8), type=f64)),
            store("out", int_(2), value=Cast(operand=Param(name="half", type=f16), type=f64)),
            store("out", int_(3), value=Cast(operand=Param(name="x", type=f32), type=f64)),
        ],
    )
    out = np.zeros(4)
    interpreter.run(module, 1, True, 200, 1.5, 0.1, out)
    assert out.tolist() == [1.0, 200.0, 1.5, float(np.float32(0.1))]


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view", [lambda a: a[::-1, :], lambda a: a.T[:3, :], lambda a: a[:, ::-2][:3, :2], lambda a: a[1:4, 1:]]
)
def test_views_are_read_and_written_in_place(interpreter: Interpreter, view: Any) -> None:
    module = kernel(
        {"a": array(i64, 2)},
        [store("a", GID, int_(1), value=add(load("a", GID, int_(0)), int_(100)))],
    )
    mine, expected = np.arange(24).reshape(4, 6), np.arange(24).reshape(4, 6)
    for row in range(3):
        view(expected)[row, 1] = view(expected)[row, 0] + 100
    interpreter.run(module, 3, view(mine))
    assert np.array_equal(mine, expected)


def test_an_axis_of_stride_zero_is_read(interpreter: Interpreter) -> None:
    module = kernel({"a": array(i64), "out": array(i64)}, [store("out", GID, value=load("a", GID))])
    out = np.zeros(3, np.int64)
    interpreter.run(module, 3, np.broadcast_to(np.int64(5), (3,)), out)
    assert out.tolist() == [5, 5, 5]


def test_a_bool_is_true_for_any_byte_but_zero(interpreter: Interpreter) -> None:
    module = kernel(
        {"a": array(bool_), "out": array(i32)},
        [store("out", GID, value=Cast(operand=load("a", GID, type=bool_), type=i32))],
    )
    out = np.zeros(3, np.int32)
    interpreter.run(module, 3, np.array([0, 1, 0x80], np.uint8).view(np.bool_), out)
    assert out.tolist() == [0, 1, 1]


def test_bf16_elements_are_their_patterns(interpreter: Interpreter) -> None:
    module = kernel(
        {"a": array(bf16)},
        [store("a", GID, value=add(load("a", GID, type=bf16), Const(value=1.0, type=bf16)))],
    )
    patterns = np.array([0x3F80, 0x4000, 0x7F80], np.uint16)  # 1, 2, infinity
    interpreter.run(module, 3, patterns)
    assert patterns.tolist() == [0x4000, 0x4040, 0x7F80]


@pytest.mark.parametrize("index", [-1, 3, 1 << 40, -(1 << 63)])
def test_an_index_outside_raises_and_touches_nothing(interpreter: Interpreter, index: int) -> None:
    memory = np.arange(10, dtype=np.int64)
    where = Location("kernels.py", 12, 4, 12, 10)
    module = kernel(
        {"x": array(i64), "at": ScalarType(i64)},
        [store("x", Param(name="at", type=i64), value=int_(99), loc=where)],
    )
    with pytest.raises(OutOfBoundsError, match=rf"index {index} is outside x, whose shape is \(3,\)") as caught:
        interpreter.run(module, 1, memory[4:7], index)
    assert caught.value.where == where
    assert memory.tolist() == list(range(10))


def test_an_index_outside_an_empty_array_raises(interpreter: Interpreter) -> None:
    module = kernel({"x": array(i64, 3)}, [store("x", int_(0), int_(0), int_(0), value=int_(1))])
    with pytest.raises(OutOfBoundsError, match=r"index \(0, 0, 0\) is outside x, whose shape is \(5, 0, 5\)"):
        interpreter.run(module, 1, np.zeros((5, 0, 5), np.int64))


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_of_an_extent_stop_at_its_edge_and_start_at_its_start(interpreter: Interpreter) -> None:
    ids = [ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=axis) for axis in range(2)]
    module = kernel(
        {"hits": array(i64, 2), "dims": array(i64)},
        [
            store("hits", *ids, value=add(load("hits", *ids), int_(1))),
            store("dims", int_(0), value=ThreadIndex(kind=IndexKind.GLOBAL_DIM, axis=0)),
            store("dims", int_(1), value=ThreadIndex(kind=IndexKind.GLOBAL_DIM, axis=1)),
        ],
        block=(2, 4),
    )
    hits, dims = np.zeros((6, 12), np.int64), np.zeros(2, np.int64)
    interpreter.run(module, (range(1, 6), range(2, 11)), hits, dims)
    expected = np.zeros((6, 12), np.int64)
    expected[1:6, 2:11] = 1
    assert np.array_equal(hits, expected)
    assert dims.tolist() == [5, 9]


def test_every_index_of_a_grid_is_right(interpreter: Interpreter) -> None:
    kinds = [kind for kind in IndexKind if "subgroup" not in kind.value]
    grid, block = (2, 3), (2, 20)
    linear = add(Binary(op=BinaryOp.MUL, left=GID, right=int_(60)), ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=1))
    body: list[Stmt] = [
        store("out", linear, int_(column), value=ThreadIndex(kind=kind, axis=axis))
        for column, (kind, axis) in enumerate(
            [(kind, axis) for kind in kinds for axis in (0, 1)]
            + [(IndexKind.SUBGROUP_LANE, 0), (IndexKind.SUBGROUP_ID, 0), (IndexKind.SUBGROUP_SIZE, 0)]
        )
    ]
    out = np.full((4 * 60, 15), -1, np.int64)
    interpreter.run(kernel({"out": array(i64, 2)}, body, form=LaunchForm.GRID, block=block), grid, out)
    for i in range(4):
        for j in range(60):
            in_block = (i % 2) * 20 + j % 20
            expected = [i, j, i % 2, j % 20, i // 2, j // 20, 4, 60, 2, 20, 2, 3, in_block % 32, in_block // 32, 32]
            assert out[i * 60 + j].tolist() == expected


def grid_kernel(body: list[Stmt], params: Any = None, locals: Any = None, **more: Any) -> Module:  # noqa: A002
    return kernel(params or {"x": array(i64)}, body, locals=locals, form=LaunchForm.GRID, block=(8,), **more)


LID = ThreadIndex(kind=IndexKind.LOCAL_ID, axis=0)


def test_threads_meet_at_a_barrier_before_any_goes_on(interpreter: Interpreter) -> None:
    other = Binary(op=BinaryOp.SUB, left=int_(7), right=LID)
    body = [
        Alloc(name="tile", space=Space.SHARED, element=i64, shape=(8,)),
        store("tile", LID, value=load("x", GID), kind=RootKind.SHARED),
        Barrier(),
        store("x", GID, value=load("tile", other, kind=RootKind.SHARED)),
    ]
    x = np.arange(16, dtype=np.int64)
    interpreter.run(grid_kernel(body), 2, x)
    assert x.tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]


def test_a_tree_reduction_in_shared_memory_is_exact(interpreter: Interpreter) -> None:
    stride = local("stride")
    fold = store(
        "tile",
        LID,
        value=add(load("tile", LID, kind=RootKind.SHARED), load("tile", add(LID, stride), kind=RootKind.SHARED)),
        kind=RootKind.SHARED,
    )
    body = [
        Alloc(name="tile", space=Space.SHARED, element=i64, shape=(8,)),
        store("tile", LID, value=load("x", GID), kind=RootKind.SHARED),
        Assign(name="stride", value=int_(4)),
        Loop(
            body=(
                Barrier(),
                If(condition=less(LID, stride), then=(fold,)),
                If(condition=equal(stride, int_(1)), then=(Break(),)),
                Assign(name="stride", value=Binary(op=BinaryOp.FLOORDIV, left=stride, right=int_(2))),
            )
        ),
        Barrier(),
        store("x", GID, value=load("tile", int_(0), kind=RootKind.SHARED)),
    ]
    x = np.array([1 << 40] * 8 + [1] * 8, np.int64)
    interpreter.run(grid_kernel(body, locals={"stride": i64}), 2, x)
    assert x.tolist() == [1 << 43] * 8 + [8] * 8


def test_a_barrier_inside_a_device_function_is_one_of_its_caller(interpreter: Interpreter) -> None:
    function = Function(
        name="meet",
        params=(Parameter(name="a", type=array(i64)),),
        results=(i64,),
        locals=(),
        body=(Barrier(), Return(values=(load("a", int_(0)),))),
    )
    body = [
        store("x", LID, value=LID),
        Call(results=("y",), function="meet", arguments=(ArrayRef(root=Root(RootKind.PARAM, "x"), type=array(i64)),)),
        If(condition=equal(LID, int_(7)), then=(store("x", int_(0), value=int_(-5)),)),
        store("x", LID, value=local("y")),
    ]
    x = np.full(8, 99, np.int64)
    interpreter.run(grid_kernel(body, locals={"y": i64}, functions=(function,)), 1, x)
    assert x.tolist() == [-5, 0, 0, 0, 0, 0, 0, 0]


def test_what_one_thread_raises_ends_the_launch_while_others_wait(interpreter: Interpreter) -> None:
    body = [
        If(condition=equal(LID, int_(5)), then=(store("x", int_(100), value=int_(0)),)),
        Barrier(),
        store("x", LID, value=int_(1)),
    ]
    caught: list[BaseException] = []

    def launch() -> None:
        try:
            interpreter.run(grid_kernel(body), 1, np.zeros(8, np.int64))
        except OutOfBoundsError as error:
            caught.append(error)

    thread = threading.Thread(target=launch, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert len(caught) == 1


def test_a_barrier_that_some_threads_never_reach_is_an_error_at_its_place(interpreter: Interpreter) -> None:
    where = Location("kernels.py", 30, 8, 30, 20)
    body = [If(condition=less(LID, int_(3)), then=(Barrier(loc=where),))]
    with pytest.raises(LaunchError, match="some threads of a block wait at this barrier") as caught:
        interpreter.run(grid_kernel(body), 1, np.zeros(8, np.int64))
    assert caught.value.where == where
    assert caught.value.chain == ("others have ended",)


def test_private_memory_belongs_to_one_thread(interpreter: Interpreter) -> None:
    body = [
        Alloc(name="own", space=Space.PRIVATE, element=i64, shape=(2, 2)),
        store("own", int_(1), int_(0), value=LID, kind=RootKind.PRIVATE),
        Barrier(),
        store("x", LID, value=load("own", int_(1), int_(0), kind=RootKind.PRIVATE)),
    ]
    x = np.zeros(8, np.int64)
    interpreter.run(grid_kernel(body), 1, x)
    assert x.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("op", "operands", "expected"),
    [
        (AtomicOp.ADD, (3,), 10 + 24),
        (AtomicOp.SUB, (3,), 10 - 24),
        (AtomicOp.MIN, (3,), 3),
        (AtomicOp.MAX, (30,), 30),
        (AtomicOp.AND, (6,), 2),
        (AtomicOp.OR, (5,), 15),
        (AtomicOp.XOR, (1,), 10),
        (AtomicOp.EXCHANGE, (4,), 4),
        (AtomicOp.COMPARE_EXCHANGE, (10, 77), 77),
        (AtomicOp.COMPARE_EXCHANGE, (11, 77), 10),
    ],
)
def test_atomics_update_and_give_the_old_value(
    interpreter: Interpreter, op: AtomicOp, operands: tuple[int, ...], expected: int
) -> None:
    atomic = Atomic(op=op, place=place("x", int_(0)), operands=tuple(map(int_, operands)), result="old")
    body = [atomic, store("olds", LID, value=local("old"))]
    x, olds = np.array([10]), np.zeros(8, np.int64)
    interpreter.run(grid_kernel(body, {"x": array(i64), "olds": array(i64)}, {"old": i64}), 1, x, olds)
    assert x[0] == expected
    assert olds[0] == 10


# --- the user's lines -------------------------------------------------------------------------------------------------

SOURCE = """\
def k(out, n):
    ž = "ϕ"; i = global_id()
    total = i + 1
    out[i + n] = total
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "my kernels ž.py"
    path.write_text(SOURCE, encoding="utf-8")
    linecache.checkcache(str(path))
    return path


def user_kernel(path: Path) -> Module:
    def at(line: int, column: int, end: int) -> Location:
        return Location(str(path), line, column, line, end)

    n = Param(name="n", type=i64, loc=at(4, 12, 13))
    index = Binary(op=BinaryOp.ADD, left=local("i"), right=n, loc=at(4, 8, 13))
    return kernel(
        {"out": array(i64), "n": ScalarType(i64)},
        [
            Assign(name="i", value=ThreadIndex(kind=IndexKind.GLOBAL_ID, axis=0, loc=at(2, 17, 28)), loc=at(2, 13, 28)),
            Assign(name="total", value=add(local("i"), int_(1)), loc=at(3, 4, 17)),
            store("out", index, value=local("total"), loc=at(4, 4, 14)),
        ],
        locals={"i": i64, "total": i64},
        loc=at(1, 0, 14),
    )


def test_an_error_has_a_frame_at_the_users_line(interpreter: Interpreter, user_file: Path) -> None:
    with pytest.raises(OutOfBoundsError, match="is outside out") as caught:
        interpreter.run(user_kernel(user_file), 3, np.zeros(3, np.int64), 1)
    frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == str(user_file)]
    assert [(frame.name, frame.lineno, frame.line) for frame in frames] == [("k", 4, "out[i + n] = total")]
    assert str(caught.value).splitlines()[1:3] == ["    out[i + n] = total", "    ^^^^^^^^^^"]


def test_positions_count_in_bytes_where_python_does(interpreter: Interpreter, user_file: Path) -> None:
    artifact = interpreter.artifact(user_kernel(user_file))
    code = interpreter.device.target.load(interpreter.artifact_id(), artifact).kernel.__code__
    line = SOURCE.splitlines()[1].encode()
    spans = {(start, end) for first, _, start, end in code.co_positions() if first == 2}
    assert (line.index(b"global_id"), len(line)) in spans


class Debugger(bdb.Bdb):
    def __init__(self) -> None:
        super().__init__()
        self.stops: list[dict[str, Any]] = []

    def user_line(self, frame: FrameType) -> None:
        if self.break_here(frame):
            names = ("i", "total", "n")
            self.stops.append({name: frame.f_locals[name] for name in names if name in frame.f_locals})
        self.set_continue()


def test_a_breakpoint_on_the_users_line_stops_with_the_users_locals(interpreter: Interpreter, user_file: Path) -> None:
    debugger = Debugger()
    assert debugger.set_break(str(user_file), 4) is None
    module = user_kernel(user_file)
    debugger.runcall(interpreter.run, module, 2, np.zeros(3, np.int64), 1)
    assert debugger.stops == [{"i": 0, "total": 1, "n": 1}, {"i": 1, "total": 2, "n": 1}]


def test_a_checked_assertion_raises_at_its_place(interpreter: Interpreter) -> None:
    where = Location("kernels.py", 3, 4, 3, 20)
    body: list[Stmt] = [Assert(condition=less(GID, int_(2)), site=0, loc=where), store("out", GID, value=GID)]
    checked = KernelOptions(checked=True)
    with pytest.raises(KernelAssertionError, match="this assertion does not hold") as caught:
        result_of(interpreter, body, extent=4, options=checked)
    assert caught.value.where == where
    assert result_of(interpreter, body, extent=4)[:4] == [0, 1, 2, 3]


# --- what goes between the halves -------------------------------------------------------------------------------------


def test_a_lowered_kernel_pickles_and_prints(interpreter: Interpreter, user_file: Path) -> None:
    lowered = interpreter.lower(user_kernel(user_file))
    again = pickle.loads(pickle.dumps(lowered))
    assert again == lowered
    assert again.text == lowered.text
    assert "def k(.thread, out, n):" in lowered.text
    out = np.zeros(3, np.int64)
    artifact = interpreter.compiler.finalize(interpreter.artifact_id(), again)
    loaded = interpreter.device.target.load(interpreter.artifact_id(), artifact)
    loaded.kernel(({}, None, *range(20)), Cells(out), 2)
    assert out.tolist() == [0, 0, 1]


class Cells:
    """The least that a kernel's store needs."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def store(self, index: tuple[int, ...], value: int, where: Location | None) -> None:
        self.array[index] = value


def test_kernels_of_other_lines_are_other_artifacts(interpreter: Interpreter, user_file: Path, tmp_path: Path) -> None:
    target = interpreter.device.target
    here = target.digest(interpreter.artifact(user_kernel(user_file)))
    assert here == target.digest(interpreter.artifact(user_kernel(user_file)))
    assert here != target.digest(interpreter.artifact(user_kernel(tmp_path / "other.py")))


def test_the_header_says_what_a_launch_needs(interpreter: Interpreter, user_file: Path) -> None:
    header = interpreter.lower(user_kernel(user_file)).header
    assert [(p.name, p.dtype, p.ndim, p.is_read, p.is_written) for p in header.params] == [
        ("out", "i64", 1, False, True),
        ("n", "i64", -1, False, False),
    ]
    assert [(slot.kind.value, slot.param, slot.axis) for slot in header.slots] == [
        ("pointer", 0, 0),
        ("shape", 0, 0),
        ("stride", 0, 0),
        ("scalar", 1, 0),
    ]
    assert header.block == (4,)


def test_nothing_is_ever_stored(interpreter: Interpreter, user_file: Path) -> None:
    target = interpreter.device.target
    artifact = interpreter.artifact(user_kernel(user_file))
    assert not target.persists
    assert target.store(interpreter.artifact_id(), artifact, None) is False
    assert target.stored(interpreter.artifact_id()) is None


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_block_of_too_many_threads_is_refused(interpreter: Interpreter) -> None:
    with pytest.raises(ValidationError, match=r"block \(64, 32\) has 2048 threads, the interpreter allows 1024"):
        interpreter.lower(kernel({}, [], block=(64, 32)))


def test_a_ready_made_source_is_refused(interpreter: Interpreter) -> None:
    definition = KernelDefinition(
        KernelId("native", "0" * 64),
        Specialization((), (), LaunchForm.GRID, (1,)),
        foreign=ForeignSource("llvm-ir", "define void @f()", "f", ()),
    )
    log = logging.getLogger(__name__)
    with pytest.raises(ValidationError, match="kernel native is llvm-ir, which the interpreter does not run"):
        interpreter.compiler.lower(definition, interpreter.artifact_id(), CompilationRecording(), log)
