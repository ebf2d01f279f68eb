"""The interpreter as a backend that claims nothing, refuses all that it does not claim, and divides inexactly."""

from __future__ import annotations

from typing import Any, Final

import attrs

from quernel.capabilities import Capabilities, TargetInfo
from quernel.codegen.gnu_c import gnu_c
from quernel.codegen.validation import validate_kernel
from quernel.dtypes import f32
from quernel.errors import ValidationError
from quernel.ir.nodes import Binary, BinaryOp, Const, Expr, Math, MathFunction, Module
from quernel.ir.passes import contract, fold
from quernel.ir.walk import map_expressions
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.device import ReferenceDevice
from quernel.reference.plugin import ReferenceBackend
from quernel.runtime.operations import DeviceInfo

QUERNEL_PLUGIN_API: Final = 1
_DIALECT: Final = gnu_c(name="meagre", kernel="", loop="", argument="", indices={}, shared="")


def is_off_by_an_ulp(expr: Expr) -> Expr:
    """Divisions and roots as a device has them that does not claim them exact."""
    is_division = isinstance(expr, Binary) and expr.op is BinaryOp.DIV
    is_root = isinstance(expr, Math) and expr.function is MathFunction.SQRT
    if not (is_division or is_root) or expr.type is not f32:
        return expr
    return Binary(op=BinaryOp.MUL, left=expr, right=Const(value=1 + 2.0**-23, type=f32, loc=expr.loc), loc=expr.loc)


class Inexact:
    """A definition whose IR divides inexactly."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def expand(self) -> Module:
        return map_expressions(self.kernel.expand(), is_off_by_an_ulp)


class MeagreCompiler(ReferenceCompiler):
    """Refuses what a target of no capabilities cannot do."""

    def lower(self, kernel: Any, *given: Any) -> Any:
        if kernel.foreign is None:
            if kernel.specialization.options.checked:
                raise ValidationError("this device has no checked launches", fix="leave `checked` out")
            validate_kernel(contract(fold(kernel.expand())), _DIALECT, self.target_info)
            kernel = Inexact(kernel)
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
