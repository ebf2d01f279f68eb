from __future__ import annotations

import pytest
from tests.unit.cuda.fake_driver import FakeDriver

from quernel_cuda import _driver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setattr(_driver, "_loaded", made)
    monkeypatch.setattr(_driver, "_missing", None)
    monkeypatch.setattr("quernel_cuda._toolchain.version", lambda: "13.0")
    return made
