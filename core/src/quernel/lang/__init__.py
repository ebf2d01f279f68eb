"""The frontend: the Python source of a kernel becomes IR, or is refused at its own line."""

from __future__ import annotations

import types
from collections.abc import Mapping

from quernel.dtypes import ParameterType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Barrier, Module, Subgroup
from quernel.ir.passes import optimize
from quernel.ir.uniformity import check_uniformity
from quernel.ir.verifier import verify
from quernel.ir.walk import walk_statements
from quernel.lang.module import KernelUnit
from quernel.options import DEFAULT_OPTIONS, KernelOptions

__all__ = ["expand"]


def expand(
    function: types.FunctionType,
    *,
    name: str,
    parameter_types: Mapping[str, ParameterType],
    constants: Mapping[str, object],
    form: LaunchForm,
    block: tuple[int, ...],
    options: KernelOptions = DEFAULT_OPTIONS,
) -> tuple[Module, bool]:
    """The IR of a specialized kernel, verified and optimised, and whether what is compiled from it may be kept.

    It may not where the code that runs is not the code of the file, because pytest rewrote it. Every parameter of
    `function` is in exactly one of `parameter_types` and `constants`. Names that are not locals mean what they mean
    now.

    Raises:
        KernelSyntaxError: a construct that the language does not have, source that does not match what runs, or a
            barrier that some threads of a block may not reach.
        KernelTypeError: types, values or names that do not fit.
    """
    unit = KernelUnit(form, block, options)
    lowered = unit.lower_kernel(function, name, parameter_types, constants)
    if _meets(lowered):
        check_uniformity(lowered)
    module = optimize(lowered)
    verify(module)
    return module, unit.storable


def _meets(module: Module) -> bool:
    """Whether threads of the module wait for each other."""
    bodies = [module.kernel.body, *(function.body for function in module.functions)]
    return any(isinstance(stmt, Barrier | Subgroup) for body in bodies for stmt in walk_statements(body))
