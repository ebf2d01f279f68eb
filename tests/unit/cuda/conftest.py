from __future__ import annotations

import copy
from collections.abc import Iterator
from weakref import WeakSet

import pytest
from tests.unit.cuda.fake_driver import FakeDriver

from quernel.api.wiring import connect
from quernel.runtime.directory import directory
from quernel_cuda import _driver


@pytest.fixture(autouse=True)
def restored_directory() -> Iterator[None]:
    """No device of a driver that is not there stays open for other tests."""
    connect()  # else it is the first test that does, and its end takes that back
    kept = {name: copy.copy(value) if isinstance(value, dict) else value for name, value in vars(directory).items()}
    yield
    vars(directory).update(kept)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setattr(_driver, "_loaded", made)
    monkeypatch.setattr(_driver, "_missing", None)
    monkeypatch.setattr(_driver, "_contexts", WeakSet())
    monkeypatch.setattr("quernel_cuda._toolchain.version", lambda: "13.0")
    return made
