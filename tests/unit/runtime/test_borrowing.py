"""Launches in the interpreter on arrays of other devices: brought there once per piece of memory, and given back."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import quernel as qn
from quernel.runtime.devices import Device


@qn.kernel
def shifted(x: qn.Array[qn.i64], y: qn.Array[qn.i64]):
    i = qn.global_id()
    y[i] = x[i] + 1


@pytest.fixture(params=["gpu", "cpu"])
def away(request: pytest.FixtureRequest, gpu: Device) -> Device:
    return gpu if request.param == "gpu" else qn.device("cpu")


def test_views_of_one_memory_alias_as_they_do_natively(away: Device) -> None:
    base = away.array(np.zeros(8, np.int64))
    shifted.options(interpret=True).over(7)(base[:-1], base[1:])
    assert base.numpy().tolist() == list(range(8))


def test_what_is_not_written_is_not_copied_back(gpu: Device) -> None:
    x, y = gpu.array(np.arange(8)), gpu.zeros(8, qn.i64)
    operations: Any = gpu.operations
    written = []
    keep = operations.copy_from_host

    def copy(memory: Any, offset: int, source: Any, stream: Any) -> None:
        written.append((memory.handle, offset, source.nbytes))
        keep(memory, offset, source, stream)

    operations.copy_from_host = copy
    shifted.options(interpret=True).over(3)(x[2:5], y[1:4])
    assert written == [(y.allocation.memory.handle, 8, 24)]
    assert y.numpy().tolist() == [0, 3, 4, 5, 0, 0, 0, 0]


def test_strided_and_reversed_views_come_back(away: Device) -> None:
    x, y = away.array(np.arange(12).reshape(3, 4)), away.array(np.full((3, 4), -1))
    shifted.options(interpret=True).over(3)(x[:, 1], y[::-1, 2])
    expected = np.full((3, 4), -1)
    expected[::-1, 2] = x.numpy()[:, 1] + 1
    assert y.numpy().tolist() == expected.tolist()
    assert x.numpy().tolist() == np.arange(12).reshape(3, 4).tolist()


def test_violation_leaves_what_was_written(away: Device) -> None:
    x, y = away.array(np.arange(8)), away.zeros(8, qn.i64)
    with pytest.raises(IndexError, match=r"index 8 is outside x.* \(in thread 8\)"):
        shifted.options(interpret=True).over(9)(x, y)
    assert y.numpy().tolist() == list(range(1, 9))


def test_empty_arrays_and_the_variable(away: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_INTERPRET", "1")
    empty = away.zeros(0, qn.i64)
    shifted.over(0)(empty, empty)
    y = away.zeros(3, qn.i64)
    shifted.over(3)(away.array(np.arange(3)), y)
    assert y.numpy().tolist() == [1, 2, 3]


def test_numpy_arrays_are_taken_as_they_are() -> None:
    y = np.zeros(3, np.int64)
    shifted.options(interpret=True).over(2)(y[:-1], y[1:])
    assert y.tolist() == [0, 1, 2]


@attrs.frozen
class Pair:
    x: qn.Array[qn.i64]
    y: qn.Array[qn.i64]


def test_arrays_within_structs_are_brought_too(gpu: Device) -> None:
    from tests.unit.runtime.scripted import ir_kernel

    text = "kernel k(a: array<i64, 1>, b: array<i64, 1>) over (8):\n    b[global_id(0)] = a[global_id(0)] + 1\n"
    base = gpu.zeros(4, qn.i64)
    ir_kernel(text, p=Pair).options(interpret=True).over(3)(Pair(base[:-1], base[1:]))
    assert base.numpy().tolist() == [0, 1, 2, 3]
