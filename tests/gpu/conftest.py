"""Tests that need a CUDA device; without one they are skipped, and say so."""

from __future__ import annotations

from typing import Any

import pytest

import quernel as qn


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lost: loses the device's context in a process of its own")


@pytest.fixture(scope="session")
def gpu() -> Any:
    try:
        device = qn.device("cuda")
    except qn.errors.QuernelError as error:
        pytest.skip(f"needs a CUDA device: {error.what}")
    return device
