"""Kernels whose loops an argument makes longer are timed at every launch, and let other threads run."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from tests.unit.cpu.harness import CONTIGUOUS, Built, lowered
from tests.unit.cpu.test_spmd import A1, F1, module_of
from tests.unit.ir_by_hand import definition

import quernel as qn
from quernel_cpu.device import _may_go_untimed
from quernel_cpu.steadiness import STEADY_FEATURE


def is_steady(body: str, **params: Any) -> bool:
    return STEADY_FEATURE in lowered(definition(module_of(body, **params)), CONTIGUOUS).header.features


def test_a_kernel_is_steady_unless_an_argument_decides_how_often_it_repeats_something() -> None:
    assert is_steady("i = qn.global_id()\nx[i] = x[i] + 1", x=F1)
    assert is_steady("i = qn.global_id()\nfor k in range(3):\n    x[i] = x[i] + k", x=F1)
    assert is_steady("i = qn.global_id()\nif x[i] > 3:\n    x[i] = x[i] + 1", x=F1)
    assert not is_steady("i = qn.global_id()\nfor k in range(x.shape[0]):\n    x[i] = x[i] + k", x=F1)
    assert not is_steady("i = qn.global_id()\nfor k in range(0, 100, out[i]):\n    x[i] = x[i] + k", x=F1, out=A1)
    assert not is_steady("i = qn.global_id()\nwhile x[i] > 3:\n    x[i] = x[i] / 2", x=F1)
    assert not is_steady("i = qn.global_id()\nfor k in range(3):\n    while x[i] > k:\n        x[i] = x[i] / 2", x=F1)


def test_only_steady_kernels_go_untimed() -> None:
    built = Built(module_of("i = qn.global_id()\nx[i] = x[i] + 1", x=F1), CONTIGUOUS)
    built.loaded.ns_per_item = 1.0
    assert built.loaded.is_steady
    assert _may_go_untimed(built.loaded, 100)
    assert not _may_go_untimed(built.loaded, 100_000)
    built.loaded.is_steady = False
    assert not _may_go_untimed(built.loaded, 100)


@qn.func
def spun(value: qn.i64, times: qn.i64) -> qn.i64:
    for k in range(times):
        value = value * 3 + k
    return value


@qn.kernel
def spin(x: qn.Array1[qn.i64], times: int):
    i = qn.global_id()
    x[i] = spun(x[i], times)


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_launch_that_takes_longer_than_those_before_lets_other_threads_run(
    monkeypatch: pytest.MonkeyPatch, native: str
) -> None:
    monkeypatch.setenv("QUERNEL_NATIVE_LAUNCHES", native)
    x, ticks, is_over = np.zeros(1, np.int64), 0, threading.Event()
    launcher = spin.options(debug=False).over(1, device="cpu")
    for _ in range(40):
        launcher(x, 1)

    def tick() -> None:
        nonlocal ticks
        while not is_over.wait(0.001):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    time.sleep(0.01)
    before, started = ticks, time.perf_counter()
    launcher(x, 60_000_000)
    during, took = ticks - before, time.perf_counter() - started
    is_over.set()
    ticker.join()
    assert during > 10, f"{during} ticks in {took:.3f} s"
