"""The backend's own types: an artifact, and what a launch calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import attrs

from quernel.compiler import Artifact

__all__ = ["CArtifact", "Loaded"]


@attrs.frozen
class CArtifact(Artifact):
    """The header, and the bytes of a shared object as payload."""


@attrs.frozen(eq=False)
class Loaded:
    """A shared object in this process, and the function in it that launches the kernel."""

    library: ctypes.CDLL
    function: Callable[..., Any]
