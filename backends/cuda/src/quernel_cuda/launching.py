"""The launch path: from the arguments' cells to the driver's one call."""

from __future__ import annotations

import ctypes
import math
from typing import Any, Final

from quernel.compiler.artifacts import ArtifactHeader
from quernel.errors import LaunchError
from quernel.geometry import Geometry, LaunchForm, cdiv
from quernel.runtime.operations import CellLaunch, PreparedLaunch, RepeatedLaunch, ShapedLaunch
from quernel_cuda import _driver
from quernel_cuda._driver import Context
from quernel_cuda.compiler import DYNAMIC_SHARED, ROW
from quernel_cuda.types import Loaded

__all__ = ["Launches", "grid_of"]

_CELL: Final = 8
_MAX_BLOCKS: Final = (1 << 31) - 1
_ELSEWHERE: Final = frozenset(
    {"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_INVALID_RESOURCE_HANDLE"}
)
"""What a launch reports while another device's context is current in the thread, or none."""


def grid_of(geometry: Geometry, header: ArtifactHeader) -> tuple[int, int, int]:
    """Blocks along x, y and z.

    Raises:
        LaunchError: an extent takes more blocks than a launch may have.
    """
    if ROW in header.features:
        last = cdiv(geometry.extent[-1], header.block[-1] * header.points_per_thread)
        num_blocks = math.prod(geometry.grid[:-1]) * last
        if num_blocks > _MAX_BLOCKS:
            raise LaunchError(
                f"extent {geometry.extent} takes {num_blocks} blocks of {header.block}, "
                f"a launch has at most {_MAX_BLOCKS}",
                fix="launch it in parts: kernel.over(range(start, stop))",
            )
        return (num_blocks, 1, 1)
    x, y, z = (*reversed(geometry.grid), 1, 1)[:3]
    if geometry.form is LaunchForm.OVER and max(y, z) > 65535:
        raise LaunchError(
            f"extent {geometry.extent} takes {max(y, z)} blocks along one axis, this kernel at most 65535",
            fix="use larger blocks along that axis",
        )
    return (x, y, z)


class _Cells:
    """The arguments of one launch at a time: where the driver reads them, and pointers to each.

    Attributes:
        buffer: the memory that the driver reads.
        held: the values that a launcher has written there; `None` for each where it was written otherwise.
        pointers: the address of the pointers to each cell.
    """

    __slots__ = ("_cells", "_pointers", "buffer", "held", "pointers")

    def __init__(self, num_slots: int) -> None:
        self._cells = (ctypes.c_char * (_CELL * num_slots))()
        first = ctypes.addressof(self._cells)
        self._pointers = (ctypes.c_void_p * num_slots)(*(first + _CELL * number for number in range(num_slots)))
        self.buffer = memoryview(self._cells).cast("B")
        self.pointers = ctypes.addressof(self._pointers) if num_slots else 0
        self.held: tuple[Any, ...] = (None,) * num_slots

    def write(self, arguments: bytes) -> None:
        """Writes all cells at once."""
        self.held = (None,) * len(self.held)
        self.buffer[:] = arguments


class Launches:
    """The launches on one device.

    Launches do not look which context is current: with the stream and the function of another one the driver refuses,
    and only then is this device's made current. The driver has read the cells when a launch returns, so cells serve one
    launch after the other, and as many are made as launches of several threads overlap.
    """

    def __init__(self, context: Context, default_stream: Any) -> None:
        self._context = context
        self._default = default_stream

    def prepare(self, loaded: Loaded, header: ArtifactHeader) -> PreparedLaunch:
        """A function for repeated launches of one kernel in any shape; it keeps the last one."""
        kept: tuple[Geometry, Any, ShapedLaunch] | None = None

        def prepared(geometry: Geometry, arguments: bytes, stream: Any) -> None:
            nonlocal kept
            last = kept
            if last is None or last[0] is not geometry or last[1] is not stream:
                kept = last = geometry, stream, self.shape(loaded, header, geometry, stream)
            last[2](arguments)

        return prepared

    def shape(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, stream: Any) -> ShapedLaunch:
        """A function for repeated launches of one kernel in one shape and stream.

        Raises:
            LaunchError: the device does not take that shape.
        """
        num_slots = len(header.slots)
        take, shaped = self.cells(loaded, header, geometry, stream)

        def copied(arguments: bytes) -> None:
            try:
                mine: _Cells = take()
            except IndexError:
                mine = _Cells(num_slots)
            mine.write(arguments)
            shaped(mine)

        return copied

    def cells(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, stream: Any) -> CellLaunch:
        """The same for cells that the caller writes.

        Raises:
            LaunchError: the device does not take that shape.
        """
        launch, success = _driver.driver().cuLaunchKernelEx, _driver.driver().CUresult.CUDA_SUCCESS
        function, config = loaded.function, self._config(header, geometry, stream)
        give, note, name, settle = loaded.spare_cells.append, self._context.recent.append, loaded.name, self._settle

        def shaped(mine: _Cells) -> None:
            status = launch(config, function, mine.pointers, 0)[0]
            if status is not success and int(status):
                settle(status, name, config, function, mine.pointers)
            give(mine)
            note(name)

        return loaded.spare_cells.pop, shaped

    def bound(
        self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any
    ) -> RepeatedLaunch:
        """A function that repeats one launch. Its cells are its own and never change, so threads share them.

        Raises:
            LaunchError: the device does not take that shape.
        """
        launch, success = _driver.driver().cuLaunchKernelEx, _driver.driver().CUresult.CUDA_SUCCESS
        function, config = loaded.function, self._config(header, geometry, stream)
        note, name, settle = self._context.recent.append, loaded.name, self._settle
        mine = _Cells(len(header.slots))
        mine.write(arguments)
        pointers = mine.pointers

        def bound() -> None:
            status = launch(config, function, pointers, 0)[0]
            if status is not success and int(status):
                settle(status, name, config, function, mine.pointers)
            note(name)

        return bound

    def _config(self, header: ArtifactHeader, geometry: Geometry, stream: Any) -> Any:
        """Grid, block, shared memory and stream as one object: eleven arguments take the bindings 0.15 µs longer."""
        config = _driver.driver().CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid_of(geometry, header)
        config.blockDimX, config.blockDimY, config.blockDimZ = (*reversed(header.block), 1, 1)[:3]
        config.sharedMemBytes = header.shared_bytes if DYNAMIC_SHARED in header.features else 0
        config.hStream = self._default if stream is None else stream.handle
        return config

    def _settle(self, status: Any, name: str, config: Any, function: Any, pointers: int) -> None:
        """What follows a launch that the driver refused: it is made again in this device's context.

        Raises:
            QuernelError: that was not the reason, or it is refused again.
        """
        if _driver.status_name(status) in _ELSEWHERE:
            with self._context:
                status = _driver.driver().cuLaunchKernelEx(config, function, pointers, 0)[0]
        if int(status):
            grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
            raise _driver.failure("cuLaunchKernelEx", status, f"launching {name} on {grid}", context=self._context)
