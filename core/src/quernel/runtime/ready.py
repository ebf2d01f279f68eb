"""From a kernel and the arguments of a launch to what is loaded and ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from quernel.capabilities import Limits
from quernel.compiler.arguments import ArgumentPacker
from quernel.compiler.artifacts import ANY_RANK, ArtifactHeader, ArtifactId, SlotKind
from quernel.compiler.definition import KernelDefinition, Specialization
from quernel.compiler.halves import LaunchFacts
from quernel.dtypes import BY_NAME, ParameterType, ScalarType
from quernel.errors import LaunchError, ValidationError
from quernel.geometry import Geometry, LaunchForm
from quernel.identity import CapturedCode, CapturedValues, capture_values
from quernel.options import KernelOptions
from quernel.runtime.argument_types import argument_type, constant_value, convert_argument
from quernel.runtime.breakpoints import warn_of_breakpoints
from quernel.runtime.definitions import FunctionOrigin, OutdatedKernelError
from quernel.runtime.devices import Device
from quernel.runtime.launchables import Launchable
from quernel.runtime.layouts import ALIGNED16, CONTIGUOUS, INDEX32, strided_layout
from quernel.runtime.operations import DeviceOperations
from quernel.runtime.parameters import Spec
from quernel.runtime.scalars import LARGEST_FLOAT

if TYPE_CHECKING:
    from quernel.runtime.quick import QuickPlan
    from quernel.runtime.reports import ReportingLaunches

__all__ = ["Ready", "RequestedLaunch", "define"]

_MAX_CAPTURES = 8
"""So often a launch reads anew what its kernel captures, when that changes while the kernel is compiled."""


def define(kernel: Launchable, made: Specialization) -> tuple[KernelDefinition, CapturedCode, CapturedValues]:
    """The kernel with everything fixed, and what it captured."""
    captured = kernel.origin.capture()
    fixed = capture_values(dict(made.constants))
    return kernel.origin.define(captured, fixed, made), captured, fixed


@final
class RequestedLaunch:
    """A launch whose arguments were read, before anything is compiled or loaded for it.

    Attributes:
        kernel: what is launched.
        device: where.
        specs: its parameters, or their parts.
        values: the arguments in the order of `specs`.
        form: over an extent, or on a grid.
        block: the block of the launch.
        facts: bits of what holds for all of its arrays.
        options: the settings that change its code.
        is_placed: whether the launch or its arrays said on which device it runs.
    """

    __slots__ = ("block", "device", "facts", "form", "is_placed", "kernel", "options", "specs", "values")

    def __init__(
        self,
        kernel: Launchable,
        device: Device,
        specs: Sequence[Spec],
        values: Sequence[Any],
        form: LaunchForm,
        block: tuple[int, ...],
        facts: int,
        options: KernelOptions,
        *,
        is_placed: bool,
    ) -> None:
        self.kernel = kernel
        self.device = device
        self.specs = specs
        self.values = values
        self.form = form
        self.block = block
        self.facts = facts
        self.options = options
        self.is_placed = is_placed

    def specialization(self) -> Specialization:
        """What is fixed before its kernel is compiled.

        Raises:
            QuernelError: an argument does not fit, or the device does not take the block or the options.
        """
        target_info = self.device.target_info
        if isinstance(self.kernel.origin, FunctionOrigin):
            warn_of_breakpoints(self.kernel.origin.function, target_info.capabilities)
        _check_block(self.block, target_info.limits, self.device)
        if self.options.checked and not target_info.capabilities.checked:
            raise ValidationError(
                f"{self.device.name} does not check indices",
                fix="use kernel.options(checked=False), or interpret=True",
            )
        parameters, constants = _types_and_constants(self.specs, self.values)
        return Specialization(parameters, constants, self.form, self.block, self.options)

    def variant(self) -> Any:
        """The variant of the artifact, in the backend's own type."""
        facts = self.facts
        return self.device.operations.target.variant(
            LaunchFacts(bool(facts & ALIGNED16), bool(facts & CONTIGUOUS), bool(facts & INDEX32))
        )

    def identified(self) -> tuple[KernelDefinition, ArtifactId[Any]]:
        """The kernel that it needs, as of now, and the id of its artifact: what a loader takes.

        Raises:
            QuernelError: as `specialization`.
        """
        definition, _, _ = define(self.kernel, self.specialization())
        return definition, ArtifactId(definition.id, self.variant())

    def load(self) -> Ready:
        """The kernel compiled and loaded.

        Raises:
            QuernelError: as `specialization`, or the kernel cannot be compiled for or loaded on the device.
        """
        device = self.device
        made = self.specialization()
        variant = self.variant()
        for attempts_left in reversed(range(_MAX_CAPTURES)):
            definition, captured, fixed = define(self.kernel, made)
            try:
                loaded = device.loader.load(definition, ArtifactId(definition.id, variant))
                break
            except OutdatedKernelError:  # Another thread assigned to what the kernel captures.
                if not attempts_left:
                    raise
        _check_shared(definition.name, loaded.header, device.target_info.limits, device)
        types = tuple(given for _, given in made.parameters)
        return Ready(definition, device, loaded.header, loaded.loaded, types, captured, fixed)


def _types_and_constants(
    specs: Sequence[Spec], values: Sequence[Any]
) -> tuple[tuple[tuple[str, ParameterType], ...], tuple[tuple[str, Any], ...]]:
    """What is fixed for these arguments, structs taken apart."""
    if any(
        spec.is_compound or value.__class__ is np.void or "__attrs_attrs__" in value.__class__.__dict__
        for spec, value in zip(specs, values, strict=True)
    ):
        from quernel.runtime.compounds import flattened

        specs, values, _ = flattened(specs, values)
    constants = [
        (spec.name, constant_value(spec, value)) for spec, value in zip(specs, values, strict=True) if spec.is_const
    ]
    passed = [(spec, value) for spec, value in zip(specs, values, strict=True) if not spec.is_const]
    specs, values = [spec for spec, _ in passed], [value for _, value in passed]
    types = [argument_type(spec, value) for spec, value in passed]
    if any(spec.variable is not None for spec in specs):
        from quernel.runtime.generics import with_variables

        types = with_variables(specs, types, values)
    return tuple((spec.name, given) for spec, given in zip(specs, types, strict=True)), tuple(constants)


@final
class Ready:
    """A loaded kernel with all that a launch of it needs.

    Attributes:
        loaded: what the backend dispatches.
        guards: of what the kernel captured.
        plans: for quick launches, by what they are for; `None` where there can be none.
        is_checked: whether its code checks indices.
        num_launches: how many have gone the general way.
        pack: makes the arguments' bytes.
        run: the backend's function for repeated launches.
        reports: launches of a kernel that checks, asserts or prints; `None` for the others.
        written: a bit per array parameter (by its place among all that are no constants) that the kernel writes.
        bounded: index, least and greatest value of the weak integers whose values are bounded.
        narrow: index and greatest value of the floats that are narrower than Python's.
        whole: places of the arrays that must be C-contiguous, as only their pointers are passed.
        waits: whether a launch on NumPy arrays must wait, as the device may run on.
    """

    __slots__ = (
        "_captured",
        "_checked_geometry",
        "_fixed",
        "_types",
        "bounded",
        "device",
        "guards",
        "header",
        "is_checked",
        "is_current",
        "loaded",
        "name",
        "narrow",
        "num_launches",
        "pack",
        "plans",
        "reports",
        "run",
        "waits",
        "whole",
        "written",
    )

    def __init__(
        self,
        definition: KernelDefinition,
        device: Device,
        header: ArtifactHeader,
        loaded: Any,
        types: tuple[ParameterType, ...],
        captured: CapturedCode,
        fixed: CapturedValues,
    ) -> None:
        self.name = definition.name
        self.device = device
        self.header = header
        self.loaded = loaded
        self.guards = (captured.guards, fixed.guards)
        self.plans: dict[tuple[Any, ...], QuickPlan | None] = {}
        self.num_launches = 0
        self.is_checked = definition.specialization.options.checked
        self.pack = ArgumentPacker(header)
        self.run = device.operations.prepare(loaded, header)
        self.written = sum(1 << index for index, parameter in enumerate(header.params) if parameter.is_written)
        self.whole = tuple(index for index, parameter in enumerate(header.params) if parameter.ndim == ANY_RANK)
        self.bounded = tuple(
            (index, *parameter.bounds) for index, parameter in enumerate(header.params) if parameter.bounds is not None
        )
        self.narrow = tuple(
            (index, LARGEST_FLOAT[BY_NAME[parameter.dtype]])
            for index, parameter in enumerate(header.params)
            if not parameter.is_array and BY_NAME.get(parameter.dtype) in LARGEST_FLOAT
        )
        self.waits = type(device.operations).synchronize is not DeviceOperations.synchronize
        self.reports: ReportingLaunches | None = None
        if header.num_sites:
            from quernel.runtime.reports import ReportingLaunches

            self.reports = ReportingLaunches(device, definition, header, self.run, waits=self.waits)
        self.is_current: Callable[[], bool] = captured.is_current
        if len(fixed.guards):
            self.is_current = lambda: captured.is_current() and fixed.guards.is_current()
        self._types = types
        self._captured = captured
        self._fixed = fixed
        self._checked_geometry: Geometry | None = None

    def packed(self, values: list[Any], geometry: Geometry) -> bytes:
        """The arguments' bytes. On the launch path.

        Raises:
            KernelTypeError: a number that does not fit its parameter.
        """
        for index, least, greatest in self.bounded:
            if not least <= values[index] <= greatest:
                self._refuse(values)
        try:
            for index, largest in self.narrow:
                if not -largest <= float(values[index]) <= largest:  # too large, infinite or no number
                    self._refuse(values)
            return self.pack(values, geometry)
        except (LaunchError, OverflowError):
            self._refuse(values)
            raise

    def check(self, geometry: Geometry) -> None:
        """Compares a geometry with the device's limits, unless it is the one of the last launch.

        Raises:
            LaunchError: the grid is larger than the device allows.
        """
        if geometry is self._checked_geometry:
            return
        if geometry.form is LaunchForm.GRID:
            limits = self.device.target_info.limits.max_grid[-geometry.ndim :]
            for axis, (count, limit) in enumerate(zip(geometry.grid, limits, strict=True)):
                if count > limit:
                    raise LaunchError(
                        f"grid {geometry.grid} has {count} blocks along axis {axis}, {self.device.name} allows {limit}",
                        fix=f"use at most {limit} blocks along that axis, or larger blocks",
                    )
        self._checked_geometry = geometry

    def refuse_writes(self, arrays: int, why: str) -> None:
        """Raises for the first written parameter among the bits of `arrays`.

        Raises:
            LaunchError: always.
        """
        index = next(index for index in range(len(self.header.params)) if arrays & self.written & (1 << index))
        name = self.header.params[index].name
        if why == "read-only":
            raise LaunchError(
                f"kernel {self.name} writes parameter {name!r}, and the array is read-only",
                fix=f"pass one that may be written: what a kernel writes to {name}.copy() is in the copy alone",
            )
        raise LaunchError(
            f"kernel {self.name} writes parameter {name!r}, an array with a stride of 0, whose elements share memory",
            fix="pass a copy, array.copy()",
        )

    def refuse_parts(self, values: Sequence[Any]) -> None:
        """Raises for the first array that is passed as its pointer alone and is not C-contiguous, if there is one.

        Raises:
            LaunchError: there is.
        """
        for index in self.whole:
            shape, steps = values[index].shape, values[index].strides
            if not strided_layout(shape, steps, 1)[0] & CONTIGUOUS:
                name = self.header.params[index].name
                raise LaunchError(
                    f"kernel {self.name} takes parameter {name!r} as a pointer alone, and the array of shape {shape} "
                    f"with strides of {steps} elements is not C-contiguous",
                    fix="pass a copy, array.copy(); or annotate it with its rank, such as qn.Array1[qn.f32], and have "
                    "the source take lengths and strides",
                )

    def updated(self, arguments: bytes, scalars: Mapping[str, Any]) -> bytes:
        """The arguments' bytes with other values of scalar parameters.

        Raises:
            LaunchError: there is no such scalar parameter.
            KernelTypeError: a value does not fit its parameter.
        """
        numbers = {parameter.name: number for number, parameter in enumerate(self.header.params)}
        cells = bytearray(arguments)
        for name, value in scalars.items():
            number = numbers.get(name, -1)
            given = self._types[number] if number >= 0 else None
            if not isinstance(given, ScalarType):
                known = [parameter.name for parameter in self.header.params if not parameter.is_array]
                raise LaunchError(
                    f"kernel {self.name} has no scalar parameter {name!r}",
                    fix=f"use one of {', '.join(known)}" if known else "capture it anew: only scalars can be changed",
                )
            value = convert_argument(name, given, value, self.header.params[number].bounds)
            for place, slot in enumerate(self.header.slots):
                if slot.kind is SlotKind.SCALAR and slot.param == number:
                    cell = self.pack.scalar_cell(slot, value)
                    cells[len(cell) * place : len(cell) * (place + 1)] = cell
        return bytes(cells)

    def _refuse(self, values: list[Any]) -> None:
        """Raises for the number that does not fit."""
        for parameter, given, value in zip(self.header.params, self._types, values, strict=True):
            if isinstance(given, ScalarType):
                convert_argument(parameter.name, given, value, parameter.bounds)


def _check_block(block: tuple[int, ...], limits: Limits, device: Device) -> None:
    threads = 1
    for size in block:
        threads *= size
    if threads > limits.max_block_threads:
        raise ValidationError(
            f"block {block} has {threads} threads, {device.name} allows {limits.max_block_threads}",
            fix=f"use a block of at most {limits.max_block_threads} threads",
        )
    for axis, (size, limit) in enumerate(zip(block, limits.max_block[-len(block) :], strict=True)):
        if size > limit:
            raise ValidationError(
                f"block {block} has {size} threads along axis {axis}, {device.name} allows {limit}",
                fix=f"use at most {limit} threads along that axis",
            )


def _check_shared(name: str, header: ArtifactHeader, limits: Limits, device: Device) -> None:
    if header.shared_bytes > limits.max_shared_bytes:
        raise ValidationError(
            f"kernel {name} takes {header.shared_bytes} bytes of shared memory, "
            f"{device.name} allows {limits.max_shared_bytes}",
            fix="use smaller shared arrays or a smaller block",
        )
