"""One specialization of a kernel, to look at: its IR, source, assembly, registers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from quernel.api.wiring import connect
from quernel.compiler.artifacts import ArtifactHeader, ArtifactId
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.recording import CompilationRecording
from quernel.dtypes import ArrayType, ParameterType, ScalarType, StructType, ValueType, VectorType
from quernel.errors import KernelTypeError
from quernel.geometry import DEFAULT_BLOCKS, LaunchForm
from quernel.kept import kept
from quernel.runtime.argument_types import argument_type, constant_value, type_as_declared
from quernel.runtime.arrays import DeviceArray
from quernel.runtime.definitions import ForeignOrigin, FunctionOrigin
from quernel.runtime.directory import directory
from quernel.runtime.parameters import MISSING, Spec, declared_type
from quernel.runtime.ready import define

if TYPE_CHECKING:
    from quernel.compiler import Pending
    from quernel.ir.nodes import Module
    from quernel.runtime.devices import Device
    from quernel.runtime.launchables import Launchable

__all__ = ["SpecializedKernel", "exact_definition", "specialize", "warm", "written_names"]

connect()
_log = logging.getLogger(__name__)


@final
class SpecializedKernel:
    """A kernel for exact types, for one device; everything is worked out when it is asked for, and kept.

    Attributes:
        definition: its identity and what is fixed.
        device: the device that it is compiled for.
    """

    def __init__(self, definition: KernelDefinition, device: Device) -> None:
        self.definition = definition
        self.device = device

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {given}" for name, given in self.definition.specialization.parameters)
        return f"<{self.definition.name}({types}) for {self.device.name}>"

    @kept
    def module(self) -> Module:
        """Its IR as nodes.

        Raises:
            KernelSyntaxError, KernelTypeError: the language does not have what the kernel says.
        """
        return self.definition.expand()

    @kept
    def ir(self) -> str:
        """Its IR as text."""
        from quernel.ir.printer import print_module

        return print_module(self.module)

    @kept
    def source(self) -> str | None:
        """The text that the backend lowers it to, or `None` where it has none to show."""
        lowered = self._lowered
        text: str | None = self._recording.source_text or self._compiler.source(lowered)
        return text

    @kept
    def asm(self) -> str | None:
        """The device's assembly, or `None` where the backend has no disassembler."""
        text: str | None = self._compiler.assembly(self._lowered)
        return text

    @property
    def registers(self) -> int | None:
        """Registers of a thread, where the toolchain says so."""
        return self.statistics.get("registers")

    @property
    def spills(self) -> int | None:
        """Bytes of a thread's registers that are kept in memory instead, where the toolchain says so."""
        return self.statistics.get("spills")

    @property
    def statistics(self) -> dict[str, int]:
        """What the toolchain says of the compiled code, by name."""
        artifact = self._artifact
        return dict(self.device.operations.target.header(artifact).statistics) | self._recording.facts

    @property
    def header(self) -> ArtifactHeader:
        """What a launch needs besides the code: argument slots, what is written, shared memory."""
        return self.device.operations.target.header(self._artifact)

    @kept
    def _id(self) -> ArtifactId[Any]:
        return ArtifactId(self.definition.id, self._compiler.default_variant(self.definition.specialization.signature))

    @property
    def _compiler(self) -> Any:
        return self.device.operations.target.compiler

    @kept
    def _recording(self) -> CompilationRecording:
        return CompilationRecording(is_full=True)

    @kept
    def _lowered(self) -> Any:
        return self._compiler.lower(self.definition, self._id, self._recording, _log)

    @kept
    def _artifact(self) -> Any:
        return self._compiler.finalize(self._id, self._lowered)


def specialize(launchable: Launchable, types: tuple[Any, ...], named: dict[str, Any]) -> SpecializedKernel:
    """The specialization of a kernel for types, values of `Const` parameters, or arguments like those of a launch."""
    definition = exact_definition(launchable, types, named)
    return SpecializedKernel(definition, directory.device(launchable.device))


def warm(launchable: Launchable, types: tuple[Any, ...], named: dict[str, Any]) -> Pending[Any, Any]:
    """The specialization of a kernel, requested from its device and started to compile on another thread."""
    from quernel.compiler.pending import Pending

    specialized = specialize(launchable, types, named)
    loader = specialized.device.loader
    pending: Pending[Any, Any] = Pending(
        loader, specialized._id, loader.request(specialized.definition, specialized._id)[0]
    )
    pending.start()
    return pending


def _in_python(spec: Spec) -> str:
    """How a call of `specialize` gives what a parameter lacks."""
    if spec.is_const:
        return f"pass {spec.name}=..."
    return f"pass {spec.name}=qn.f32, qn.Array1[qn.f32] or an argument"


def exact_definition(
    launchable: Launchable,
    types: tuple[Any, ...],
    named: dict[str, Any],
    how_to_give: Callable[[Spec], str] = _in_python,
) -> KernelDefinition:
    """A kernel with everything fixed, for no device in particular.

    `how_to_give` says how the user gives what a parameter lacks, for the error.
    """
    parameters = launchable.parameters
    given = dict(zip(parameters.names, types, strict=False))
    if len(types) > len(parameters.names):
        parameters.bind(types, {})
    for name, value in named.items():
        parameters.index_of(name)
        if name in given:
            parameters.bind(types, {name: value})
        given[name] = value
    values = [given.get(spec.name, spec.default if spec.is_const else MISSING) for spec in parameters.specs]
    exact, constants = _exact(launchable, parameters.specs, values, how_to_give)
    return _defined(launchable, exact, constants)


def _exact(
    launchable: Launchable,
    specs: Sequence[Spec],
    values: Sequence[Any],
    how_to_give: Callable[[Spec], str] = _in_python,
) -> tuple[tuple[tuple[str, ParameterType], ...], tuple[tuple[str, Any], ...]]:
    """The types and constants of a specialization; `MISSING` where only the annotation says something."""
    from quernel.runtime.compounds import flattened
    from quernel.runtime.generics import with_variables

    typed = [_as_declared(spec, value) for spec, value in zip(specs, values, strict=True)]
    specs, values, _ = flattened([spec for spec, _ in typed], [value for _, value in typed])
    passed: list[tuple[Spec, Any]] = []
    constants: list[tuple[str, Any]] = []
    for spec, value in zip(specs, values, strict=True):
        if not spec.is_const:
            passed.append((spec, value))
        elif value is MISSING:
            raise KernelTypeError(
                f"Const parameter {spec.name!r} of kernel {launchable.origin.name} has no value",
                fix=how_to_give(spec),
            )
        else:
            constants.append((spec.name, constant_value(spec, value)))
    types = [_exact_type(launchable, spec, value, how_to_give) for spec, value in passed]
    types = with_variables([spec for spec, _ in passed], types, [MISSING] * len(types))
    exact = tuple((spec.name, type_) for (spec, _), type_ in zip(passed, types, strict=True))
    return exact, tuple(constants)


def _as_declared(spec: Spec, value: Any) -> tuple[Spec, Any]:
    """A type given for a struct or vector as if it had been declared."""
    is_type = isinstance(value, type | np.dtype | StructType | VectorType)
    if is_type and not spec.is_const and (spec.is_compound or spec.declared is None):
        given = Spec(spec.name, declared_type(spec.name, value))
        if given.is_compound:
            if not spec.is_compound:
                return given, MISSING
            from quernel.runtime.compounds import refuse_other_compound

            refuse_other_compound(spec, given)
            return spec, MISSING
    return spec, value


def written_names(launchable: Launchable) -> tuple[str, ...]:
    """The array parameters that a kernel writes: from what was launched, else from its declared types."""
    if isinstance(launchable.origin, ForeignOrigin):
        return launchable.origin.source.writes
    for table in (launchable.over, launchable.grid):
        for ready in table.values():
            return tuple(parameter.name for parameter in ready.header.params if parameter.is_written)
    from quernel.ir.analysis import parameter_uses

    module = _without_device(launchable).expand()
    uses = parameter_uses(module)
    arrays = [parameter.name for parameter in module.kernel.params if isinstance(parameter.type, ArrayType)]
    return tuple(name for name in arrays if uses.array(name).is_written)


def _without_device(launchable: Launchable) -> KernelDefinition:
    specs = launchable.parameters.specs
    for spec in specs:
        if spec.is_const and spec.default is MISSING:
            raise KernelTypeError(
                f"what kernel {launchable.origin.name} writes may depend on {spec.name!r}", fix="launch it first"
            )
    exact, constants = _exact(launchable, specs, [spec.default if spec.is_const else MISSING for spec in specs])
    return _defined(launchable, exact, constants)


def _defined(
    launchable: Launchable, exact: tuple[tuple[str, ParameterType], ...], constants: tuple[tuple[str, Any], ...]
) -> KernelDefinition:
    """The kernel over an extent, or on a grid where it has a block concept; of the rank that its ids are read in."""

    def defined(form: LaunchForm, block: tuple[int, ...]) -> KernelDefinition:
        return define(launchable, Specialization(exact, constants, form, block, launchable.options_now()))[0]

    origin = launchable.origin
    if not isinstance(origin, FunctionOrigin):
        return defined(LaunchForm.GRID, launchable.block or DEFAULT_BLOCKS[1])
    from quernel.lang.blocks import NeedsBlocksError
    from quernel.lang.ranks import launch_rank

    block = launchable.block or DEFAULT_BLOCKS[launch_rank(origin.function, dict(exact))]
    definition = defined(LaunchForm.OVER, block)
    try:
        definition.expand()
    except NeedsBlocksError:
        definition = defined(LaunchForm.GRID, block)
        definition.expand()
    return definition


def _exact_type(launchable: Launchable, spec: Spec, given: Any, how_to_give: Callable[[Spec], str]) -> ParameterType:
    if given is MISSING:
        declared = spec.declared
        if isinstance(declared, ArrayType) and isinstance(declared.element, ValueType):
            return ArrayType(declared.element, 1 if declared.ndim is None else declared.ndim)
        if isinstance(declared, ScalarType):
            return declared
        raise KernelTypeError(
            f"parameter {spec.name!r} of kernel {launchable.origin.name} has no exact type",
            fix=how_to_give(spec),
        )
    if isinstance(given, np.ndarray | np.generic | DeviceArray | bool | int | float):
        if spec.vector is not None:
            from quernel.runtime.vectors import read_vectors

            read_vectors(spec, given)
        return argument_type(spec, given)
    wanted = declared_type(spec.name, given)
    if isinstance(wanted, ScalarType | ArrayType):
        return type_as_declared(spec, wanted)
    raise KernelTypeError(f"{given!r} is no exact type for parameter {spec.name!r}", fix="write qn.Array1[qn.f32]")
