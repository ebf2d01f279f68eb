"""The operations on the host as a device: its memory is the core's default, a launch is a call."""

from __future__ import annotations

import ctypes
from typing import Any

from quernel.compiler import ArtifactHeader
from quernel.geometry import Geometry
from quernel.runtime.host_memory import HostMemoryOperations
from quernel_c.artifacts import Loaded

__all__ = ["CDevice"]


class CDevice(HostMemoryOperations[Loaded]):
    """Runs each launch to its end on the thread that makes it. Any thread, also several at once."""

    survives_fork = True

    def launch(self, loaded: Loaded, header: ArtifactHeader, geometry: Geometry, arguments: bytes, stream: Any) -> None:
        """Calls the kernel's loop. C counts axes from the fastest, Quernel in array order."""
        grid = (*reversed(geometry.grid), 1, 1)[:3]
        loaded.function(arguments, (ctypes.c_int64 * 3)(*grid))
