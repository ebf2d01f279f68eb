"""From a kernel and the shape of a launch to its launcher. Imported at the first launch."""

from __future__ import annotations

from typing import Any

from quernel.api.wiring import connect
from quernel.errors import LaunchError, QuernelError
from quernel.geometry import normalize_block
from quernel.runtime.devices import Device
from quernel.runtime.directory import directory
from quernel.runtime.launch_sites import as_raised_by_the_call
from quernel.runtime.launchables import Launchable
from quernel.runtime.launchers import Launcher
from quernel.runtime.layouts import extent_layout, grid_layout
from quernel.runtime.streams import Stream

__all__ = ["on_grid", "over"]

connect()


def over(kernel: Launchable, extent: Any, block: Any, device: Any, stream: Stream | None) -> Launcher:
    """The launcher over an extent. On the launch path.

    Raises:
        LaunchError: no launch has such an extent, block or stream; raised at the line of the call.
        DeviceError: there is no such device.
    """
    try:
        shape = kernel.block if block is None else normalize_block(block)
        if stream is not None and not isinstance(stream, Stream):
            raise LaunchError(f"stream is a {type(stream).__name__}, not a stream", fix="pass device.stream()")
        geometry, facts = extent_layout(extent, shape)
        return Launcher(kernel, geometry, facts, _device(kernel, device), stream)
    except QuernelError as error:
        raise as_raised_by_the_call(error, 2) from error.__cause__


def on_grid(kernel: Launchable, key: Any) -> Launcher:
    """The launcher of `kernel[key]`. On the launch path.

    Raises:
        LaunchError: no launch has such a grid, block or stream; raised at the line of the call.
    """
    try:
        grid, block, stream = _split(key)
        shape = kernel.block if block is None else normalize_block(block)
        geometry, facts = grid_layout(grid, shape)
        return Launcher(kernel, geometry, facts, _device(kernel, None), stream)
    except QuernelError as error:
        raise as_raised_by_the_call(error, 2) from error.__cause__


def _device(kernel: Launchable, device: Any) -> Device | None:
    if device is None:
        device = kernel.device
        if device is None:
            return None
    return directory.device(device)


def _split(key: Any) -> tuple[Any, Any, Stream | None]:
    if not isinstance(key, tuple):
        return key, None, None
    if not 1 <= len(key) <= 3:
        raise LaunchError(f"kernel[...] takes 1 to 3 parts, got {len(key)}", fix="write kernel[grid, block, stream]")
    grid, block, stream = (*key, None, None)[:3]
    if stream is not None and not isinstance(stream, Stream):
        raise LaunchError(
            f"the third part of kernel[grid, block, stream] is a {type(stream).__name__}, not a stream",
            fix="write a grid of three axes as a tuple: kernel[(gz, gy, gx), block], or kernel[(gz, gy, gx),]",
        )
    return grid, block, stream
