"""NumPy arrays lent to devices that do not see the host's memory, so that one test runs on every device.

The tests of the kit launch on NumPy arrays. On a device with memory of its own, `lend_arrays` makes each such launch
copy the memory of its arrays in, views and overlaps as they are, and back once the launch is over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["lend_arrays"]

_is_lending = False


def lend_arrays() -> None:
    """From now on, and in this process alone, launches lend NumPy arrays to devices that need it."""
    global _is_lending
    if _is_lending:
        return
    _is_lending = True
    from quernel.runtime.launchers import Launcher

    look_up, interpret = Launcher._look_up, Launcher._interpret

    def looked_up(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return look_up(self, args, kwargs) if _borrower(self, args, kwargs) is None else (None, [], False)

    def interpreted(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        device = _borrower(self, args, kwargs)
        if device is None:
            interpret(self, args, kwargs)
        else:
            _launch_lent(self, args, kwargs, device)

    Launcher._look_up = looked_up  # type: ignore[method-assign]
    Launcher._interpret = interpreted  # type: ignore[method-assign]


def _borrower(launcher: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The device to which the launch's NumPy arrays have to be lent, if any."""
    from quernel import settings
    from quernel.runtime.directory import directory

    device = launcher._device or directory.named()
    if device is None or device.is_host_accessible or launcher._kernel.interpret or settings.interpret():
        return None
    return device if any(isinstance(value, np.ndarray) for value in _leaves((*args, *kwargs.values()))) else None


def _leaves(values: Any) -> Any:
    for value in values:
        if isinstance(value, tuple):
            yield from _leaves(value)
        else:
            yield value


def _launch_lent(launcher: Any, args: tuple[Any, ...], kwargs: dict[str, Any], device: Any) -> None:
    from quernel.runtime import launchers
    from quernel.runtime.compounds import flattened

    parameters = launcher._kernel.parameters
    specs, given, structs = flattened(parameters.specs, parameters.bind(args, kwargs))
    lent = _Lent(given, device)
    ready, values, on_host = launcher._find(specs, lent.values, device, tuple(structs))
    written = iter(ready.header.params)
    is_written = [not spec.is_const and next(written).is_written for spec in specs]
    kept = [value for value, spec in zip(given, specs, strict=True) if not spec.is_const]
    read_only = sum(
        1 << number for number, value in enumerate(kept) if isinstance(value, np.ndarray) and not value.flags.writeable
    )
    if read_only & ready.written:
        ready.refuse_writes(read_only, "read-only")
    arguments = ready.packed(values, launcher._geometry)
    ready.check(launcher._geometry)
    stream = launcher._stream
    try:
        launchers._launch(
            ready, launcher._geometry, arguments, None if stream is None else stream.handle, on_host, lent
        )
    finally:
        device.synchronize()
        lent.give_back(is_written)


class _Lent:
    """The arguments of one launch, with the memory of each NumPy array on the device."""

    def __init__(self, given: Sequence[Any], device: Any) -> None:
        self._given = given
        self._device = device
        self._memory: dict[int, tuple[int, np.ndarray[Any, Any], Any]] = {}
        self.values = tuple(self._lent(value) if isinstance(value, np.ndarray) else value for value in given)

    def _lent(self, array: np.ndarray[Any, Any]) -> Any:
        from quernel.runtime.arrays import DeviceArray, element_of

        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if id(root) not in self._memory:
            low, high = np.lib.array_utils.byte_bounds(root)
            memory = _bytes_at(low, high - low)
            copied = self._device.array(memory)
            self._memory[id(root)] = (low, memory, copied)
        low, _, copied = self._memory[id(root)]
        address = array.__array_interface__["data"][0] if array.size else low
        return DeviceArray(copied.allocation, element_of(array.dtype), array.shape, array.strides, address - low)

    def give_back(self, is_written: Sequence[bool]) -> None:
        """Copies memory back in which something was written."""
        for array, written in zip(self._given, is_written, strict=True):
            if not (written and isinstance(array, np.ndarray)):
                continue
            root = array
            while isinstance(root.base, np.ndarray):
                root = root.base
            _, memory, copied = self._memory[id(root)]
            copied.copy_to(memory)


def _bytes_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B"), np.uint8)
