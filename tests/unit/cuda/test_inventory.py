"""What doctor hears of a machine without a device of NVIDIA's, and which targets errors name."""

from __future__ import annotations

import pytest

from quernel.errors import DeviceError, QuernelError
from quernel_cuda import _driver, _toolchain, inventory, targets


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_toolchain, "version", lambda: "13.0")
    monkeypatch.setattr(_toolchain, "supported_architectures", lambda: (70, 75, 90, 107))


def without_driver(monkeypatch: pytest.MonkeyPatch, *, is_absent: bool) -> None:
    def refuse() -> object:
        raise _driver.DriverMissingError("no driver", fix="install it")

    monkeypatch.setattr(_driver, "driver", refuse)
    monkeypatch.setattr(_driver, "_absent", is_absent)


def test_a_machine_without_a_driver_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    without_driver(monkeypatch, is_absent=True)
    health = inventory.health()
    assert health.problems == ()
    assert [note.reason for note in health.notes] == ["no driver"]


def test_a_driver_that_does_not_start_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    without_driver(monkeypatch, is_absent=False)
    health = inventory.health()
    assert health.notes == ()
    assert [problem.reason for problem in health.problems] == ["no driver"]


def test_without_a_compiler_a_missing_driver_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise QuernelError("no NVRTC", fix="install it")

    without_driver(monkeypatch, is_absent=True)
    monkeypatch.setattr(_toolchain, "version", refuse)
    assert [problem.reason for problem in inventory.health().problems] == ["no NVRTC", "no driver"]


def test_errors_and_doctor_name_the_same_targets() -> None:
    (listed,) = [text for name, text in inventory.health().versions if name == "compiles for"]
    for name in ("sm_20", "volta"):
        with pytest.raises(DeviceError, match="is no CUDA target") as caught:
            targets.named_target(name)
        assert caught.value.fix == f"use one of {listed}, or compute_90 for PTX"
    assert listed == "sm_75, sm_90, sm_107"


def test_the_mend_of_a_missing_driver_says_how_to_compile_without() -> None:
    assert "--target cuda:sm_90" in _driver._INSTALL
