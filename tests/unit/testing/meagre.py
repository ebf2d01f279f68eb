"""The interpreter as a backend that claims nothing, and refuses all that it does not claim."""

from __future__ import annotations

from typing import Any, Final

import attrs

from quernel.capabilities import Capabilities, TargetInfo
from quernel.codegen.gnu_c import gnu_c
from quernel.codegen.validation import validate_kernel
from quernel.errors import ValidationError
from quernel.ir.passes import contract, fold
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.device import ReferenceDevice
from quernel.reference.plugin import ReferenceBackend
from quernel.runtime.operations import DeviceInfo

QUERNEL_PLUGIN_API: Final = 1
_DIALECT: Final = gnu_c(name="meagre", kernel="", loop="", argument="", indices={}, shared="")


class MeagreCompiler(ReferenceCompiler):
    """Refuses what a target of no capabilities cannot do."""

    def lower(self, kernel: Any, *given: Any) -> Any:
        if kernel.foreign is None:
            if kernel.specialization.options.checked:
                raise ValidationError("this device has no checked launches", fix="leave `checked` out")
            validate_kernel(contract(fold(kernel.expand())), _DIALECT, self.target_info)
        return super().lower(kernel, *given)


class MeagreBackend(ReferenceBackend):
    """One device without f64, small floats, barriers, subgroups, checks and wide atomics."""

    name = "meagre"

    def devices(self) -> tuple[DeviceInfo, ...]:
        return tuple(attrs.evolve(info, backend=self.name) for info in super().devices())

    def target_info(self, target: str) -> TargetInfo:
        return attrs.evolve(super().target_info(target), backend=self.name, capabilities=Capabilities())

    def compiler(self, target: TargetInfo) -> MeagreCompiler:
        return MeagreCompiler(target)

    def open(self, info: DeviceInfo) -> ReferenceDevice:
        return ReferenceDevice(info, self.compiler(self.target_info("")))


quernel_backend = MeagreBackend
