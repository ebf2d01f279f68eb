"""Every test here runs on every backend that is installed and has a device."""

from __future__ import annotations

import pytest

import quernel as qn


def _names() -> list[str]:
    """Every device: by its backend's name where that has one, else by number."""
    names: list[str] = []
    for backend in qn.backends():
        if backend.ok:
            devices = qn.devices(backend.name)
            names += (
                [f"{info.backend}:{info.index}" for info in devices]
                if len(devices) > 1
                else [backend.name] * len(devices)
            )
    return names


@pytest.fixture(scope="session", params=_names())
def device(request: pytest.FixtureRequest) -> qn.Device:
    return qn.device(request.param)
