"""Every test here runs on every backend that is installed and has a device."""

from __future__ import annotations

import pytest

import quernel as qn


def _names() -> list[str]:
    """The backends with a device that NumPy arrays can be launched on in place."""
    usable = [backend.name for backend in qn.backends() if backend.ok]
    return [name for name in usable if qn.devices(name)]


@pytest.fixture(scope="session", params=_names())
def device(request: pytest.FixtureRequest) -> qn.Device:
    return qn.device(request.param)
