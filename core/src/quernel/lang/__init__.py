"""The frontend: the Python source of a kernel becomes IR, or is refused at its own line."""

from __future__ import annotations

import types
from collections.abc import Mapping

import attrs

from quernel.dtypes import ParameterType
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Module
from quernel.ir.passes import optimize
from quernel.ir.verifier import verify
from quernel.lang.module import KernelUnit
from quernel.options import DEFAULT_OPTIONS, KernelOptions

__all__ = ["Expansion", "expand", "expand_with_source"]


@attrs.frozen(eq=False)
class Expansion:
    """What expanding a kernel gives.

    Attributes:
        module: its IR.
        storable: whether what is compiled from it may be kept: the code that runs is the code of the file.
    """

    module: Module
    storable: bool


def expand(
    function: types.FunctionType,
    *,
    name: str,
    parameter_types: Mapping[str, ParameterType],
    constants: Mapping[str, object],
    form: LaunchForm,
    block: tuple[int, ...],
    options: KernelOptions = DEFAULT_OPTIONS,
) -> Module:
    """The IR of a specialized kernel, verified and optimised.

    Every parameter of `function` is in exactly one of `parameter_types` and `constants`. Names that are not locals mean
    what they mean now.

    Raises:
        KernelSyntaxError: a construct that the language does not have, or source that does not match what runs.
        KernelTypeError: types, values or names that do not fit.
    """
    expansion = expand_with_source(
        function,
        name=name,
        parameter_types=parameter_types,
        constants=constants,
        form=form,
        block=block,
        options=options,
    )
    return expansion.module


def expand_with_source(
    function: types.FunctionType,
    *,
    name: str,
    parameter_types: Mapping[str, ParameterType],
    constants: Mapping[str, object],
    form: LaunchForm,
    block: tuple[int, ...],
    options: KernelOptions = DEFAULT_OPTIONS,
) -> Expansion:
    """As `expand`, and also says whether the result may be stored."""
    unit = KernelUnit(form, block, options)
    module = unit.lower_kernel(function, name, parameter_types, constants)
    module = optimize(module)
    verify(module)
    return Expansion(module, unit.storable)
