"""A kernel as the launch path sees it: its parameters, its settings, and the tables of what is ready to launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from quernel.geometry import LaunchForm
    from quernel.options import KernelOptions
    from quernel.runtime.definitions import Origin
    from quernel.runtime.parameters import Parameters
    from quernel.runtime.quick import QuickPlan
    from quernel.runtime.ready import Ready

__all__ = ["Launchable", "ReadyTable"]

ReadyTable = dict[tuple[Any, ...], "Ready"]
"""What is ready to launch, by what a launcher's key says."""

_MAX_READY = 512


@final
class Launchable:
    """A kernel with its settings. Kernels that differ in a setting have tables of their own.

    Attributes:
        origin: where its code comes from.
        parameters: what it takes.
        options: the settings that change its code.
        block: its block, or `None` for the default one of a launch's rank.
        device: what names the device that it runs on, or `None` where the launch decides.
        interpret: whether it runs in the reference interpreter.
        over: what is ready to launch over an extent.
        grid: the same for explicit grids.
        latest: the plan of the latest quick launch in each form, with which new launchers begin.
    """

    __slots__ = ("block", "device", "grid", "interpret", "latest", "options", "origin", "over", "parameters")

    def __init__(
        self,
        origin: Origin,
        parameters: Parameters,
        options: KernelOptions,
        *,
        block: tuple[int, ...] | None = None,
        device: Any = None,
        interpret: bool = False,
    ) -> None:
        self.origin = origin
        self.parameters = parameters
        self.options = options
        self.block = block
        self.device = device
        self.interpret = interpret
        self.over: ReadyTable = {}
        self.grid: ReadyTable = {}
        self.latest: dict[LaunchForm, QuickPlan] = {}

    @staticmethod
    def keep(table: ReadyTable, key: tuple[Any, ...], ready: Ready) -> None:
        """Keeps what is ready, within bounds: closed devices and left environments do not pile up."""
        if len(table) >= _MAX_READY:
            table.clear()
        table[key] = ready
