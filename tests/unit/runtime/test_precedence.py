"""What a kernel says counts; where it says nothing, the environment does."""

from __future__ import annotations

import numpy as np
import pytest

import quernel as qn
from quernel.api import Kernel


def beyond(x: qn.Array1[qn.i64], y: qn.Array1[qn.i64]) -> None:
    i = qn.global_id()
    assert x[i] < 100
    y[i] = x[i] + 1


said_nothing = qn.kernel(beyond)
said_yes = qn.kernel(checked=True)(beyond)
said_no = qn.kernel(checked=False)(beyond)

CASES = [
    # kernel, the variable, whether it checks
    (said_nothing, None, False),
    (said_nothing, "1", True),
    (said_nothing, "0", False),
    (said_yes, None, True),
    (said_yes, "0", True),
    (said_no, "1", False),
    (said_no, None, False),
    (said_nothing.options(checked=False), "1", False),
    (said_nothing.options(checked=True), "0", True),
    (said_yes.options(checked=False), "1", False),
    (said_no.options(checked=True), "0", True),
    (said_no.options(block=64), "1", False),
    (said_no.options(fast_math=True), "1", False),
    (said_nothing.options(block=64), "1", True),
]


def set_to(monkeypatch: pytest.MonkeyPatch, name: str, value: str | None) -> None:
    if value is None:
        monkeypatch.delenv(name, raising=False)
    else:
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize(("kernel", "variable", "checks"), CASES)
def test_checks_are_on_where_the_kernel_or_else_the_variable_says_so(
    kernel: Kernel, variable: str | None, checks: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to(monkeypatch, "QUERNEL_CHECKED", variable)
    x, y = np.full(4, 200), np.zeros(4, np.int64)
    launcher = kernel.over(4, device=device)
    for _ in range(5):  # the last ones on the quick path
        if checks:
            with pytest.raises(AssertionError, match="200"):
                launcher(x, y)
        else:
            launcher(x, y)
    assert y.tolist() == ([0] * 4 if checks else [201] * 4)
    made = kernel.options(device=device).specialize()
    assert made.definition.specialization.options.checked is checks


def test_a_change_of_the_variable_counts_at_once_for_a_quick_launcher_that_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = np.full(4, 200), np.zeros(4, np.int64)
    follows, ignores = said_nothing.over(4, device="cpu"), said_no.over(4, device="cpu")
    for launcher in (follows, ignores):
        for _ in range(5):
            launcher(x, y)
        assert type(launcher).__call__ is not type(said_yes.over(3)).__call__
    monkeypatch.setenv("QUERNEL_CHECKED", "1")
    with pytest.raises(AssertionError, match="200"):
        follows(x, y)
    ignores(x, y)


@pytest.mark.parametrize(
    ("said", "variable", "interprets"),
    [(None, None, False), (None, "1", True), (False, "1", False), (True, "0", True), (True, None, True)],
)
def test_launches_are_interpreted_where_the_kernel_or_else_the_variable_says_so(
    said: bool | None, variable: str | None, interprets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quernel.runtime.launchers import Launcher

    seen = []
    real = Launcher._interpret
    monkeypatch.setattr(Launcher, "_interpret", lambda self, *rest: seen.append(1) or real(self, *rest))
    set_to(monkeypatch, "QUERNEL_INTERPRET", variable)
    kernel = said_nothing if said is None else said_nothing.options(interpret=said)
    x, y = np.arange(4), np.zeros(4, np.int64)
    launcher = kernel.over(4, device="cpu")
    for _ in range(5):
        launcher(x, y)
    launcher.bind(x, y)()
    assert y.tolist() == [1, 2, 3, 4]
    assert len(seen) == (6 if interprets else 0)


def test_what_was_said_is_shown_and_survives_pickling() -> None:
    import pickle

    assert repr(said_no).endswith("checked=False>")
    assert "checked" not in repr(said_nothing)
    copied = pickle.loads(pickle.dumps(named.options(checked=False)))
    assert copied._launchable.checked is False
    assert pickle.loads(pickle.dumps(named))._launchable.checked is None


@qn.kernel
def named(x: qn.Array1[qn.i64]) -> None:
    x[qn.global_id()] = 1
