"""Threads that wait for each other in the interpreter: subgroups, barriers, prints and errors among them."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest
from tests.unit.reference.builders import Interpreter

from quernel.dtypes import bf16
from quernel.errors import KernelAssertionError, LaunchError, OutOfBoundsError
from quernel.ir.parser import parse_module

SIZE = 32


def run(interpreter: Interpreter, text: str, extent: Any, *arguments: Any) -> None:
    interpreter.run(parse_module(text), extent, *arguments)


def subgroup(interpreter: Interpreter, operation: str, values: list[int], type_: str = "i64") -> list[int]:
    """What each thread of one block gets from an operation on its `x`."""
    n = len(values)
    text = (
        f"kernel k(x: array<i64, 1>, out: array<i64, 1>) grid ({n}):\n    local v: i64\n    local r: {type_}\n"
        f"    v = x[local_id(0)]\n    r = subgroup.{operation}\n    out[local_id(0)] = i64(r)\n"
    )
    out = np.full(n, -1, np.int64)
    run(interpreter, text, 1, np.array(values, np.int64), out)
    result: list[int] = out.tolist()
    return result


VALUES = [(7 * i) % 41 for i in range(40)]
PARTS = [VALUES[:SIZE], VALUES[SIZE:]]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("shuffle(v, 3)", [part[3] for part in PARTS for _ in part]),
        ("shuffle(v, 20)", [PARTS[0][20]] * 32 + PARTS[1]),
        ("broadcast(v, 0)", [part[0] for part in PARTS for _ in part]),
        ("shuffle_xor(v, 1)", [part[i ^ 1] for part in PARTS for i in range(len(part))]),
        ("shuffle_up(v, 2)", [part[i - 2] if i >= 2 else part[i] for part in PARTS for i in range(len(part))]),
        ("shuffle_down(v, 5)", [v for part in PARTS for v in part[5:] + part[-5:]]),
        ("sum(v)", [sum(part) for part in PARTS for _ in part]),
        ("min(v)", [min(part) for part in PARTS for _ in part]),
        ("max(v)", [max(part) for part in PARTS for _ in part]),
        ("scan(v)", [sum(part[: i + 1]) for part in PARTS for i in range(len(part))]),
    ],
)
def test_subgroups_exchange_what_each_lane_brings(
    interpreter: Interpreter, operation: str, expected: list[int]
) -> None:
    assert subgroup(interpreter, operation, VALUES) == expected


def test_subgroups_vote(interpreter: Interpreter) -> None:
    bits = sum(1 << lane for lane, value in enumerate(PARTS[0]) if value > 20)
    few = sum(1 << lane for lane, value in enumerate(PARTS[1]) if value > 20)
    assert subgroup(interpreter, "ballot(v > 20)", VALUES, "u64") == [bits] * 32 + [few] * 8
    assert subgroup(interpreter, "any(v == 7)", VALUES, "bool") == [1] * 32 + [0] * 8
    assert subgroup(interpreter, "all(v >= 7)", [*range(32), *[8] * 8], "bool") == [0] * 32 + [1] * 8


def test_subgroups_meet_in_loops_and_functions_while_others_go_their_own_way(interpreter: Interpreter) -> None:
    text = (
        "kernel k(out: array<i64, 1>) grid (64):\n    local i, r: i64\n"
        "    for i in range(0, 1 + subgroup_id(0), 1):\n        r = call f(local_id(0))\n    barrier\n"
        "    out[local_id(0)] = r\n\n"
        "func f(v: i64) -> (i64):\n    local r: i64\n    r = subgroup.sum(v)\n    return r\n"
    )
    out = np.zeros(64, np.int64)
    run(interpreter, text, 1, out)
    assert out.tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if local_id(0) < 3:\n        r = subgroup.sum(1)", "some threads of a subgroup wait at this operation"),
        (
            "if local_id(0) < 3:\n        r = subgroup.sum(1)\n    else:\n        r = subgroup.max(1)",
            "some threads of a subgroup",
        ),
        ("if local_id(0) < 3:\n        r = subgroup.sum(1)\n    else:\n        barrier", "some threads of a subgroup"),
        ("if local_id(0) < 32:\n        barrier", "some threads of a block wait at this barrier"),
    ],
)
def test_threads_that_do_not_all_come_are_an_error(interpreter: Interpreter, body: str, message: str) -> None:
    text = f"kernel k() grid (64):\n    local r: i64\n    {body}\n"
    with pytest.raises(LaunchError, match=message):
        run(interpreter, text, 1)


@pytest.mark.parametrize(
    ("failing", "error"),
    [("x[local_id(0)] = 1", OutOfBoundsError), ("assert[0] local_id(0) != 5", KernelAssertionError)],
)
def test_an_error_in_one_thread_ends_those_at_the_barrier(
    interpreter: Interpreter, failing: str, error: type[Exception]
) -> None:
    text = f"kernel k(x: array<i64, 1>) grid (8) with checked:\n    barrier\n    {failing}\n    barrier\n"
    before = threading.active_count()
    with pytest.raises(error, match=r"\(in thread 5\)"):
        run(interpreter, text, 1, np.zeros(5, np.int64))
    assert threading.active_count() == before


def test_the_thread_of_an_error_is_its_global_id(interpreter: Interpreter) -> None:
    text = "kernel k(x: array<i64, 2>) grid (2, 4):\n    x[global_id(0), global_id(1)] = 1\n"
    with pytest.raises(OutOfBoundsError, match=r"index \(0, 5\) is outside x.* \(in thread \(0, 5\)\)"):
        run(interpreter, text, (2, 2), np.zeros((4, 5), np.int64))


def test_prints_come_at_once_and_in_their_types(interpreter: Interpreter, capsys: Any) -> None:
    text = (
        "kernel k(x: array<f32, 1>) over (4):\n    print[0] global_id(0), x[global_id(0)], x[0] < 1.0f32\n"
        "    x[global_id(0) + 1] = 0.0f32\n"
    )
    with pytest.raises(OutOfBoundsError, match="is outside x"):
        run(interpreter, text, 3, np.array([0.1, 1.0], np.float32))
    assert capsys.readouterr().out == "0 0.1 True\n1 0.0 True\n"


def test_bf16_is_printed_without_numpy_knowing_it(
    interpreter: Interpreter, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.setattr(bf16, "_numpy", None)
    run(interpreter, "kernel k(x: array<bf16, 1>) over (4):\n    print[0] x[0]\n", 1, np.array([0x3DCD], np.uint16))
    assert capsys.readouterr().out == "0.100097656\n"


def test_prints_of_threads_that_meet_are_shown_thread_by_thread(interpreter: Interpreter, capsys: Any) -> None:
    text = "kernel k() grid (2):\n    print[0] global_id(0), 1\n    barrier\n    print[1] global_id(0), 2\n"
    run(interpreter, text, 2)
    assert capsys.readouterr().out == "".join(f"{thread} {part}\n" for thread in range(4) for part in (1, 2))


def test_prints_before_an_error_are_shown(interpreter: Interpreter, capsys: Any) -> None:
    text = "kernel k(x: array<i64, 1>) grid (2):\n    print[0] global_id(0)\n    barrier\n    x[9] = 1\n"
    with pytest.raises(OutOfBoundsError, match="is outside x"):
        run(interpreter, text, 1, np.zeros(1, np.int64))
    assert capsys.readouterr().out == "0\n1\n"
