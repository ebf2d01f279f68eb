"""The operations on the interpreter's one device: host memory, and launches on the calling thread."""

from __future__ import annotations

from typing import Any, Final

from quernel.compiler.artifacts import ArtifactHeader, SlotKind
from quernel.dtypes import ArrayType
from quernel.geometry import Geometry
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.target import ReferenceTarget
from quernel.reference.threads import run_threads
from quernel.reference.types import Loaded
from quernel.reference.values import read_value
from quernel.reference.views import view_at
from quernel.runtime.host_memory import HostMemoryOperations
from quernel.runtime.operations import DeviceInfo

__all__ = ["ReferenceDevice"]

_CELL_BYTES: Final = 8


class ReferenceDevice(HostMemoryOperations[Loaded]):
    """Runs each launch to its end on the thread that makes it. Any thread, also several at once."""

    survives_fork = True

    def __init__(self, info: DeviceInfo, compiler: ReferenceCompiler) -> None:
        self.info = info
        self._target = ReferenceTarget(compiler)

    @property
    def target(self) -> ReferenceTarget:
        """The half that stays with this device."""
        return self._target

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        """Runs every thread in order and returns when the last has ended.

        Raises:
            OutOfBoundsError: a thread reached outside an array.
            KernelAssertionError: an assertion of a checked kernel did not hold.
            LaunchError: threads of one block waited at different barriers.
        """
        values = _values(loaded, header, arguments)
        subgroup_size = self._target.compiler.target_info.subgroup_size
        run_threads(loaded.kernel, loaded.waits, geometry, values, loaded.sites, subgroup_size)


def _values(loaded: Loaded, header: ArtifactHeader, arguments: bytes) -> tuple[Any, ...]:
    """The arguments of a launch as the kernel's Python function takes them."""
    cells: dict[tuple[int, SlotKind], list[Any]] = {}
    for number, slot in enumerate(header.slots):
        value = read_value(arguments, number * _CELL_BYTES, slot.dtype)
        cells.setdefault((slot.param, slot.kind), []).append(value)
    values: list[Any] = []
    for number, (parameter, type_) in enumerate(zip(header.params, loaded.params, strict=True)):
        if not isinstance(type_, ArrayType):
            values.append(cells[number, SlotKind.SCALAR][0])
            continue
        assert type_.element is not None
        (address,) = cells[number, SlotKind.POINTER]
        shape = tuple(cells.get((number, SlotKind.SHAPE), ()))
        strides = tuple(cells.get((number, SlotKind.STRIDE), ()))
        values.append(view_at(parameter.name, type_.element, address, shape, strides))
    return tuple(values)
