from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import quernel as qn
import quernel.lang
from quernel.compiler import ArtifactId
from quernel.compiler.halves import LaunchFacts
from quernel.errors import OutOfBoundsError
from quernel.runtime.ready import define

OFFSET = 2.0
REACH = 1


@qn.kernel
def offset(x: qn.Array[qn.f64]):
    x[qn.global_id()] = OFFSET


@qn.kernel
def turned(x: qn.Array[qn.f64]):
    x[qn.global_id()] = -OFFSET


@qn.kernel
def tripled(x: qn.Array[qn.f64]):
    x[qn.global_id()] = 3 * OFFSET


@qn.func
def shifted(x):
    return x + OFFSET


@qn.kernel
def applied(x: qn.Array[qn.f64], function: qn.Const):
    x[qn.global_id()] = function(x[qn.global_id()])


@qn.kernel(checked=True)
def reaching(x: qn.Array[qn.f64]):
    x[qn.global_id() + REACH] = 1.0


class Made:
    """Its attribute is another object, of an equal value, at each access."""

    class _Half:
        def __get__(self, instance: object, owner: type) -> float:
            return float("0.5")

    HALF = _Half()


@qn.kernel
def halved(x: qn.Array[qn.f64]):
    x[qn.global_id()] = Made.HALF


def while_expanding(monkeypatch: pytest.MonkeyPatch, do: Any) -> None:
    """Calls `do(n)` before the frontend runs for the n-th time, as another thread may."""
    expand = quernel.lang.expand
    calls: list[int] = []

    def expand_later(*args: Any, **kwargs: Any) -> Any:
        calls.append(0)
        do(len(calls))
        return expand(*args, **kwargs)

    monkeypatch.setattr(quernel.lang, "expand", expand_later)


def launched(kernel: Any, *more: Any) -> float:
    x = np.zeros(1)
    kernel.over(1)(x, *more)
    return float(x[0])


def test_value_that_changes_before_the_expansion_is_never_kept_under_the_old_id() -> None:
    with pytest.MonkeyPatch.context() as during:
        while_expanding(during, lambda n: during.setitem(globals(), "OFFSET", 3.0))
        assert launched(offset) == 3.0
    assert launched(offset) == 2.0


def test_device_function_among_the_constants_that_changes_is_captured_again() -> None:
    with pytest.MonkeyPatch.context() as during:
        while_expanding(during, lambda n: during.setitem(globals(), "OFFSET", 4.0))
        assert launched(applied, shifted) == 4.0
    assert launched(applied, shifted) == 2.0


def test_value_that_changes_at_each_attempt_ends_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    while_expanding(monkeypatch, lambda n: monkeypatch.setitem(globals(), "OFFSET", 10.0 + n))
    with pytest.raises(qn.errors.CompilationError, match="that kernel turned captures changed before"):
        launched(turned)


def test_queued_kernel_whose_values_changed_fails_and_its_launch_compiles_it_rightly() -> None:
    device = qn.device("cpu")
    made = tripled.specialize(qn.Array1[qn.f64]).definition.specialization
    definition, _, _ = define(tripled._launchable, made)
    variant = device.operations.target.variant(LaunchFacts(True, True, True))
    device.loader.enqueue(definition, ArtifactId(definition.id, variant))
    with pytest.MonkeyPatch.context() as during:
        during.setitem(globals(), "OFFSET", 3.0)
        assert device.loader.compile_queued() == 0
    assert launched(tripled) == 6.0


def test_value_made_anew_at_each_access_is_unchanged_while_it_is_equal() -> None:
    assert launched(halved) == 0.5


def test_violation_is_told_by_its_number_once_what_the_kernel_captures_has_changed() -> None:
    x = np.zeros(1)
    with pytest.raises(OutOfBoundsError, match="outside"):
        reaching.over(1)(x)
    bound = reaching.options(device="cpu").over(1).bind(x)  # Loaded already: nothing expands it.
    with pytest.MonkeyPatch.context() as during:
        during.setitem(globals(), "REACH", 2)
        with pytest.raises(OutOfBoundsError, match="what it captures, has changed"):
            bound()
