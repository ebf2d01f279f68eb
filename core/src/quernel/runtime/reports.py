"""What launches report: violations of checks, which raise, and prints, which are shown in the order of the threads.

A kernel with checks, assertions or prints gets a diagnostics buffer for each launch. A checked launch is over before it
returns, so that a violation raises where the launch was written; arrays then hold whatever the threads wrote until
they stopped. Prints are shown once the launch is known to be over: at once on a device that runs synchronously, else
when somebody waits for its stream or for the device.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from quernel import diagnostics
from quernel.compiler.artifacts import ArtifactHeader, SlotKind
from quernel.errors import KernelAssertionError, LaunchError, OutOfBoundsError, QuernelError

if TYPE_CHECKING:
    from quernel.compiler.definition import KernelDefinition
    from quernel.diagnostics import Diagnostics, Record
    from quernel.geometry import Geometry
    from quernel.ir.nodes import Module
    from quernel.runtime.devices import Device
    from quernel.runtime.operations import Memory, PreparedLaunch

__all__ = ["PendingReport", "ReportingLaunches", "finish_all", "show_at_exit"]

_HEAD_CELLS: Final = diagnostics.PRINT_RECORDS
_HEAD_BYTES: Final = diagnostics.CELL_BYTES * _HEAD_CELLS
_NUM_CELLS: Final = _HEAD_CELLS + diagnostics.DEFAULT_PRINT_CELLS
_MAX_SPARE: Final = 4
_MAX_PENDING: Final = 64
"""So many launches may keep their buffers until somebody waits; the next one waits itself."""


@final
class ReportingLaunches:
    """Launches of one kernel that has something to report.

    Args:
        device: where they run.
        definition: says what the numbers of a report mean, when there is one.
        header: of the kernel.
        run: the backend's function for launches.
        waits: whether the device goes on beside the host.
    """

    def __init__(
        self, device: Device, definition: KernelDefinition, header: ArtifactHeader, run: PreparedLaunch, *, waits: bool
    ) -> None:
        self.device = device
        self.name = definition.name
        self._definition = definition
        self._run = run
        self._waits = waits
        self._is_checked = definition.specialization.options.checked
        self._spare: list[np.ndarray[Any, Any]] = []
        self._cell = next(n for n, slot in enumerate(header.slots) if slot.kind is SlotKind.DIAGNOSTICS)

    def launch(self, geometry: Geometry, arguments: bytes, stream: Any, on_host: bool, keep: object) -> None:
        """Launches with a buffer of its own.

        Raises:
            OutOfBoundsError, KernelAssertionError: a check found a violation.
            LaunchError: a graph is being captured, whose launches could not report one by one.
        """
        device = self.device
        if device.is_capturing:
            raise LaunchError(
                f"kernel {self.name} checks or prints, which a graph cannot repeat",
                fix="capture it without print, and with kernel.options(checked=False), also where QUERNEL_CHECKED=1",
            )
        report = PendingReport(self, geometry.ndim, stream, keep)
        start = diagnostics.CELL_BYTES * self._cell
        address = report.address.to_bytes(diagnostics.CELL_BYTES, "little")
        cells = arguments[:start] + address + arguments[start + diagnostics.CELL_BYTES :]
        run = self._run
        try:
            device.give(self.name, lambda into: run(geometry, cells, into), stream, keep)
            if self._waits and (self._is_checked or on_host):
                device.operations.synchronize(stream)
        except BaseException:
            report.free()
            raise
        if self._waits and not (self._is_checked or on_host):
            show_at_exit(device)
            device.keep_report(report)
            if len(device.reports) > _MAX_PENDING:
                device.synchronize()
            return
        try:
            device.show_reports(stream)
        finally:
            report.finish()

    def take_buffer(self) -> np.ndarray[Any, Any]:
        """A buffer in the host's memory, all zeros but for its capacity."""
        try:
            return self._spare.pop()
        except IndexError:
            buffer = np.zeros(_NUM_CELLS, np.uint64)
            buffer[diagnostics.CAPACITY] = diagnostics.DEFAULT_PRINT_CELLS
            return buffer

    def give_buffer(self, buffer: np.ndarray[Any, Any]) -> None:
        """Keeps a buffer for the next launch; only what was written is cleared, as that is little of it."""
        if len(self._spare) < _MAX_SPARE:
            buffer[: _HEAD_CELLS + _used_cells(buffer)] = 0
            buffer[diagnostics.CAPACITY] = diagnostics.DEFAULT_PRINT_CELLS
            self._spare.append(buffer)

    def report(self, found: Diagnostics) -> None:
        """Shows what was printed, then raises what was violated."""
        if not (found.prints or found.lost or found.violation is not None):
            return
        try:
            module = self._definition.expand()
        except QuernelError as error:
            self._report_numbers(found, error)
            return
        from quernel.ir.sites import violation_error

        self._show(found, module)
        if found.violation is not None:
            raise violation_error(module, found.violation)

    def _show(self, found: Diagnostics, module: Module) -> None:
        from quernel.ir.sites import sites

        known = sites(module)
        records = sorted(found.prints, key=lambda record: record.global_id)
        lines = [known[record.site].text(record.values) for record in records]
        if found.lost:
            lines.append(f"[kernel {self.name}: {found.lost} more prints did not fit]")
        sys.stdout.write("".join(f"{line}\n" for line in lines))

    def _report_numbers(self, found: Diagnostics, error: QuernelError) -> None:
        """Reports as far as that goes without the kernel's source, which cannot be read any more."""
        if found.violation is None:
            sys.stdout.write(f"[kernel {self.name}: {len(found.prints) + found.lost} prints cannot be shown]\n")
            return
        raise _unexplained(self.name, found.violation) from error


def _unexplained(name: str, record: Record) -> QuernelError:
    thread = record.global_id[0] if len(record.global_id) == 1 else record.global_id
    values = f" of the values {record.values}" if record.values else ""
    where = f"check {record.site} of kernel {name}{values} does not hold (in thread {thread})"
    what = f"{where}; its source, or what it captures, has changed"
    fix = "start the process anew, so that source and compiled code agree"
    return OutOfBoundsError(what, fix=fix) if record.values else KernelAssertionError(what, fix=fix)


@final
class PendingReport:
    """The diagnostics buffer of one launch.

    Attributes:
        address: of the buffer, as kernels see it.
        stream: where the launch runs.
        keep: what the launch needs to stay alive.
    """

    __slots__ = ("_host", "_launches", "_memory", "_ndim", "address", "keep", "stream")

    def __init__(self, launches: ReportingLaunches, ndim: int, stream: Any, keep: object) -> None:
        self._launches = launches
        self._ndim = ndim
        self.stream = stream
        self.keep = keep
        self._host: np.ndarray[Any, Any] | None = None
        self._memory: Memory | None = None
        if launches.device.is_host_accessible:
            self._host = launches.take_buffer()
            self.address: int = self._host.__array_interface__["data"][0]
            return
        operations = launches.device.operations
        memory = self._memory = operations.allocate(_NUM_CELLS * diagnostics.CELL_BYTES)
        self.address = memory.address
        operations.fill(memory, 0, bytes(diagnostics.CELL_BYTES), _NUM_CELLS, stream)
        capacity = np.array([diagnostics.DEFAULT_PRINT_CELLS], np.uint64).view(np.uint8)
        operations.copy_from_host(memory, diagnostics.CAPACITY * diagnostics.CELL_BYTES, capacity, stream)

    def finish(self) -> None:
        """Reports, once the launch is over, and gives the buffer back.

        Raises:
            OutOfBoundsError, KernelAssertionError: a check found a violation.
        """
        try:
            found = diagnostics.decode(self._read(), self._ndim)
        finally:
            self.free()
        self._launches.report(found)

    def free(self) -> None:
        """Gives the buffer back, reported or not."""
        if self._host is not None:
            self._launches.give_buffer(self._host)
            self._host = None
        if self._memory is not None:
            self._launches.device.operations.free(self._memory)
            self._memory = None

    def _read(self) -> memoryview:
        """The buffer's head and the print records in use."""
        if self._host is not None:
            return self._host.data
        assert self._memory is not None
        operations = self._launches.device.operations
        data = np.empty(_HEAD_BYTES, np.uint8)
        operations.copy_to_host(data, self._memory, 0, self.stream)
        used = _used_cells(data.view(np.uint64))
        if used:
            data = np.empty(_HEAD_BYTES + used * diagnostics.CELL_BYTES, np.uint8)
            operations.copy_to_host(data, self._memory, 0, self.stream)
        return data.data


def finish_all(reports: Sequence[PendingReport]) -> None:
    """Finishes every report, whatever the others find.

    Raises:
        OutOfBoundsError, KernelAssertionError: the first violation found; notes tell the others.
    """
    failures: list[Exception] = []
    waiting = list(reversed(reports))
    try:
        while waiting:
            try:
                waiting.pop().finish()
            except Exception as failure:
                failures.append(failure)
    finally:  # Interrupted: what is left is not shown.
        for report in waiting:
            report.free()
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"another launch that was waited for: {other}")
        raise failures[0]


def _used_cells(cells: np.ndarray[Any, Any]) -> int:
    """How many cells of the print records may be written."""
    return min(int(cells[diagnostics.PRINT_CURSOR]) & 0xFFFF_FFFF, int(cells[diagnostics.CAPACITY]))


_to_show: weakref.WeakSet[Device] = weakref.WeakSet()


def show_at_exit(device: Device) -> None:
    """Makes the process show what kernels of the device have printed before it ends."""
    if not _to_show:
        atexit.register(_show_all)
    _to_show.add(device)


def _show_all() -> None:
    for device in list(_to_show):
        if device.reports and not device.is_closed:
            device.synchronize()
