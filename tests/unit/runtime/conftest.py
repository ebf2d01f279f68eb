from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.runtime.scripted import ScriptedBackend, ScriptedDevice, Source

from quernel.runtime.devices import Device
from quernel.runtime.directory import DeviceDirectory, directory


@pytest.fixture
def gpu() -> Device:
    """A device whose memory the host does not reach."""
    backend = ScriptedBackend("fake", [("gpu", "Fake One")])
    (info,) = backend.devices()  # type: ignore[misc]
    return Device(backend.open(info), backend=backend)


@pytest.fixture
def seen(gpu: Device) -> ScriptedDevice:
    """What the backend of `gpu` saw."""
    operations: Any = gpu.operations
    return operations


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replaces the process's installed backends: `installed(backend, ...)`."""
    fresh = DeviceDirectory()
    kept = {name: getattr(directory, name) for name in ("_source", "_open", "_default", "_by_spec", "_host")}
    for name in ("_open", "_default", "_by_spec", "_host"):
        setattr(directory, name, getattr(fresh, name))
    monkeypatch.delenv("QUERNEL_DEVICE", raising=False)

    def install(*backends: ScriptedBackend) -> Source:
        source = Source(*backends)
        directory.use_source(source)
        return source

    install()
    yield install
    for name, value in kept.items():
        setattr(directory, name, value)
