"""A kernel as the launch path sees it: its parameters, its settings, and the tables of what is ready to launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from quernel import settings
from quernel.values import evolve

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
        options: the settings that change its code, as far as the kernel says them.
        checked: whether it checks indices, or `None` where the environment decides.
        block: its block, or `None` for the default one of a launch's rank.
        device: what names the device that it runs on, or `None` where the launch decides.
        interpret: whether it runs in the reference interpreter, or `None` where the environment decides.
        over: what is ready to launch over an extent.
        grid: the same for explicit grids.
        latest: the plan of the latest quick launch in each form, with which new launchers begin.
    """

    __slots__ = (
        "_options_when_checked",
        "block",
        "checked",
        "device",
        "grid",
        "interpret",
        "latest",
        "options",
        "origin",
        "over",
        "parameters",
    )

    def __init__(
        self,
        origin: Origin,
        parameters: Parameters,
        options: KernelOptions,
        *,
        block: tuple[int, ...] | None = None,
        device: Any = None,
        checked: bool | None = None,
        interpret: bool | None = None,
    ) -> None:
        self.origin = origin
        self.parameters = parameters
        self.options = options if checked is None else evolve(options, checked=checked)
        self.checked = checked
        self._options_when_checked = evolve(options, checked=True)
        self.block = block
        self.device = device
        self.interpret = interpret
        self.over: ReadyTable = {}
        self.grid: ReadyTable = {}
        self.latest: dict[LaunchForm, QuickPlan] = {}

    def options_now(self) -> KernelOptions:
        """The settings of a launch: those of the kernel, and where it says nothing those of the environment.

        Raises:
            SettingError: a variable is not understood.
        """
        return self._options_when_checked if self.checked is None and settings.checked() else self.options

    def interprets_now(self) -> bool:
        """Whether a launch runs in the reference interpreter: the kernel says so, or else the environment.

        Raises:
            SettingError: a variable is not understood.
        """
        return settings.interpret() if self.interpret is None else self.interpret

    @staticmethod
    def keep(table: ReadyTable, key: tuple[Any, ...], ready: Ready) -> None:
        """Keeps what is ready, within bounds: closed devices and left environments do not pile up."""
        if len(table) >= _MAX_READY:
            table.clear()
        table[key] = ready
