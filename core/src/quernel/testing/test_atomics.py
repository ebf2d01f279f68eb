"""Atomic operations: every thread's share arrives, and each thread gets the value that was there before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.testing.fuzz.programs import kernel_of
from quernel.testing.launching import on

INTEGERS = (qn.i32, qn.u32, qn.i64, qn.u64)
NUMBERS = (*INTEGERS, qn.f32, qn.f64)
OPERATIONS = {
    "add": sum,
    "min": min,
    "max": max,
    "and_": lambda values: int(np.bitwise_and.reduce(np.array(values))),
    "or_": lambda values: int(np.bitwise_or.reduce(np.array(values))),
    "xor": lambda values: int(np.bitwise_xor.reduce(np.array(values))),
}


def needs(dtype: Any) -> Any:
    if dtype is qn.f64:
        return pytest.param(dtype, marks=pytest.mark.quernel_needs("f64_atomics"), id="f64")
    if dtype.bits == 64:
        return pytest.param(dtype, marks=pytest.mark.quernel_needs("int64_atomics"), id=str(dtype))
    return pytest.param(dtype, id=str(dtype))


MEANT = [
    (name, dtype) for name in OPERATIONS for dtype in NUMBERS if name in ("add", "min", "max") or dtype in INTEGERS
]
IN_SHARED_MEMORY = """\
    tally = qn.shared(2, qn.{dtype})
    if qn.local_id() == 0:
        tally[1] = 37
    qn.barrier()
    qn.atomic.{operation}(tally, 1, x[qn.global_id()])
    qn.barrier()
    if qn.local_id() == 0:
        cell[qn.block_id()] = tally[1]
"""


def of_all() -> list[Any]:
    """Each operation with each type that it is for."""
    return [
        pytest.param(operation, dtype, marks=needs(dtype).marks, id=f"{operation}-{dtype}")
        for operation, dtype in MEANT
    ]


def values() -> Any:
    return np.random.default_rng(5).integers(1, 100, 96)


@pytest.mark.parametrize(("operation", "dtype"), of_all())
def test_an_atomic_operation_takes_in_every_thread(quernel_device: Any, operation: str, dtype: Any) -> None:
    kernel = kernel_of(f"@qn.kernel\ndef k(x, cell):\n    qn.atomic.{operation}(cell, 0, x[qn.global_id()])\n")
    x, cell = values().astype(dtype.numpy), np.full(1, 37, dtype.numpy)
    on(quernel_device, kernel).over(96)(x, cell)
    assert cell.tolist() == [OPERATIONS[operation]([37, *x.tolist()])]


@pytest.mark.quernel_needs("barriers")
@pytest.mark.parametrize(("operation", "dtype"), of_all())
def test_an_atomic_operation_in_shared_memory_takes_in_every_thread(
    quernel_device: Any, operation: str, dtype: Any
) -> None:
    text = IN_SHARED_MEMORY.format(operation=operation, dtype=dtype)
    kernel = kernel_of(f"@qn.kernel\ndef k(x, cell):\n{text}")
    x, cell = values().astype(dtype.numpy), np.zeros(1, dtype.numpy)
    on(quernel_device, kernel)[1, 96](x, cell)
    assert cell.tolist() == [OPERATIONS[operation]([37, *x.tolist()])]


@pytest.mark.parametrize("operation", ["and_", "or_", "xor"])
def test_a_bitwise_atomic_of_floats_is_refused(quernel_device: Any, operation: str) -> None:
    kernel = kernel_of(f"@qn.kernel\ndef k(x, cell):\n    qn.atomic.{operation}(cell, 0, x[0])\n")
    with pytest.raises(qn.errors.KernelTypeError, match="bitwise atomics work on integers"):
        on(quernel_device, kernel).over(1)(np.ones(1, np.float32), np.ones(1, np.float32))


@pytest.mark.parametrize("dtype", [needs(dtype) for dtype in NUMBERS])
def test_an_atomic_difference_exchange_and_compare_and_swap(quernel_device: Any, dtype: Any) -> None:
    kernel = kernel_of(
        "@qn.kernel\ndef k(x, old):\n"
        "    old[0] = qn.atomic.sub(x, 0, 3)\n"
        "    old[1] = qn.atomic.exchange(x, 1, 4)\n"
        "    old[2] = qn.atomic.cas(x, 2, 30, 5)\n"
        "    old[3] = qn.atomic.cas(x, 3, 30, 5)\n"
    )
    x, old = np.array([10, 20, 30, 40], dtype.numpy), np.zeros(4, dtype.numpy)
    on(quernel_device, kernel).over(1)(x, old)
    assert old.tolist() == [10, 20, 30, 40]
    assert x.tolist() == [7, 4, 5, 40]


@qn.kernel
def takes_tickets(cell, tickets):
    tickets[qn.global_id()] = qn.atomic.add(cell, 0, 1)


@pytest.mark.parametrize("dtype", [needs(dtype) for dtype in NUMBERS])
def test_an_atomic_operation_returns_the_old_value_to_each_of_many_threads(quernel_device: Any, dtype: Any) -> None:
    count = 16_384
    cell, tickets = np.zeros(1, dtype.numpy), np.zeros(count, dtype.numpy)
    on(quernel_device, takes_tickets).over(count)(cell, tickets)
    assert cell.tolist() == [count]
    assert np.array_equal(np.sort(tickets), np.arange(count))


@pytest.mark.parametrize("dtype", [needs(qn.f32), needs(qn.f64)])
@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("cas(x, i, given[i], 7)", [7, 7, "old", 7, "old"]),
        ("min(x, i, given[i])", ["old", "old", "old", "old", "old"]),
        ("max(x, i, given[i])", ["old", "old", "old", "old", "given"]),
    ],
    ids=("cas", "min", "max"),
)
def test_atomic_operations_compare_floats_by_value(
    quernel_device: Any, operation: str, expected: list[Any], dtype: Any
) -> None:
    text = f"@qn.kernel\ndef k(x, given, old):\n    i = qn.global_id()\n    old[i] = qn.atomic.{operation}\n"
    x = np.array([0.0, -0.0, np.nan, 1.0, 1.0], dtype.numpy)
    given = np.array([-0.0, 0.0, np.nan, 1.0, 2.0], dtype.numpy)
    wanted = [{"old": was, "given": other}.get(word, word) for word, was, other in zip(expected, x, given, strict=True)]
    changed, old = x.copy(), np.zeros_like(x)
    on(quernel_device, kernel_of(text)).over(len(x))(changed, given, old)
    for found, meant in ((changed, np.array(wanted, dtype.numpy)), (old, x)):
        assert np.array_equal(found, meant, equal_nan=True)
        assert np.array_equal(np.signbit(found[:2]), np.signbit(meant[:2]))


def test_an_atomic_operation_takes_indices_of_several_axes(quernel_device: Any) -> None:
    kernel = kernel_of("@qn.kernel\ndef k(x):\n    i = qn.global_id()\n    qn.atomic.max(x, (i % 2, 1), i)\n")
    x = np.zeros((2, 3), np.int32)
    on(quernel_device, kernel).over(9)(x[:, ::-1])
    assert x.tolist() == [[0, 8, 0], [0, 7, 0]]
