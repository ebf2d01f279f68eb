"""Backends that keep artifacts wrongly, made of the CPU backend. The IR is not imported, as a warm start must not."""

from __future__ import annotations

from typing import Any, Final

import attrs

from quernel.capabilities import TargetInfo
from quernel.runtime.operations import Backend, DeviceInfo
from quernel_cpu.device import CpuDevice
from quernel_cpu.plugin import CpuBackend
from quernel_cpu.target import CpuTarget

QUERNEL_PLUGIN_API: Final = 1

_stored_here: set[Any] = set()


class Target(CpuTarget):
    """The CPU's, with the fault of its name."""

    fault: str

    def open_store(self, environment: Any) -> Any:
        if self.fault != "takes-any-fingerprint" or environment is None:
            return super().open_store(environment)
        from quernel.store.compilation import opened_store

        return opened_store(self.compiler.target_info.backend, "any", 1, environment)

    def load(self, key: Any, artifact: Any) -> Any:
        if self.fault == "stores-first":
            super().store(key, artifact, None)
        return super().load(key, artifact)

    def store(self, key: Any, artifact: Any, *given: Any) -> bool:
        _stored_here.add(key)
        return super().store(key, artifact, *given)

    def stored(self, key: Any) -> Any:
        if self.fault == "forgets-at-the-end" and key not in _stored_here:
            return None
        return super().stored(key)


class WrongStoreBackend(CpuBackend):
    """The CPU under the name of a fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.name = f"wrong-{fault}"

    def devices(self) -> Any:
        return tuple(attrs.evolve(info, backend=self.name) for info in super().devices())

    def target_info(self, target: str) -> TargetInfo:
        return attrs.evolve(super().target_info(target), backend=self.name)

    def open(self, info: DeviceInfo) -> CpuDevice:
        device = CpuDevice(info, self.compiler(self.target_info("")))
        target = Target(device.target.compiler)
        target.fault = self.fault
        device._target = target
        return device


def backend_of(fault: str) -> Backend:
    return WrongStoreBackend(fault)
