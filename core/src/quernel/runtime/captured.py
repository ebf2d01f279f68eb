"""A launch that was captured instead of run: what a graph keeps of it, so that its scalars can be changed later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from quernel.geometry import Geometry
    from quernel.runtime.ready import Ready

__all__ = ["CapturedLaunch"]


@final
class CapturedLaunch:
    """One launch with its arguments packed; calling it with a stream runs it there."""

    __slots__ = ("_arguments", "_geometry", "_ready")

    def __init__(self, ready: Ready, geometry: Geometry, arguments: bytes) -> None:
        self._ready = ready
        self._geometry = geometry
        self._arguments = arguments

    def __call__(self, into: Any) -> None:
        """Runs the launch in a stream."""
        self._ready.run(self._geometry, self._arguments, into)

    def updated(self, scalars: Mapping[str, Any]) -> CapturedLaunch:
        """The same launch with other values of scalar parameters.

        Raises:
            QuernelError: there is no such parameter, or a value does not fit.
        """
        return CapturedLaunch(self._ready, self._geometry, self._ready.updated(self._arguments, scalars))
