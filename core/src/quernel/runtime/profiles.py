"""Profiles: how long each launch and copy took on its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import attrs

from quernel.errors import LaunchError
from quernel.runtime.interceptors import Interceptor

if TYPE_CHECKING:
    from quernel.runtime.devices import Device

__all__ = ["Profile", "ProfiledWork"]


@attrs.frozen
class ProfiledWork:
    """One launch, copy or fill: the kernel's name (or `copy`, `fill`) and its time on the device."""

    name: str
    duration_ns: int


@final
class Profile(Interceptor):
    """The times of what a thread gives to a device in a `with` block, readable after it."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._marks: list[tuple[str, Any, Any]] = []
        self._work: tuple[ProfiledWork, ...] | None = None

    def __enter__(self) -> Profile:
        if self.device.is_capturing:
            raise LaunchError("a graph that is being captured does not run", fix="profile the launch of the graph")
        self._begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        operations = self.device.operations
        operations.synchronize(None)
        self._work = tuple(ProfiledWork(name, operations.elapsed_ns(start, end)) for name, start, end in self._marks)
        self._marks.clear()

    def take(self, name: str, run: Callable[[Any], None], stream: Any, keep: object) -> None:
        """Runs one piece of work between two events."""
        operations = self.device.operations
        start = operations.record_event(stream)
        run(stream)
        self._marks.append((name, start, operations.record_event(stream)))

    @property
    def work(self) -> tuple[ProfiledWork, ...]:
        """Everything that ran, in order.

        Raises:
            LaunchError: the `with` block has not ended.
        """
        if self._work is None:
            raise LaunchError("the profile is still being taken", fix="read it after its with block")
        return self._work

    @property
    def total_ns(self) -> int:
        """The sum of all times."""
        return sum(one.duration_ns for one in self.work)

    def __repr__(self) -> str:
        if self._work is None:
            return f"<profile of {self.device.name}, being taken>"
        totals: dict[str, list[int]] = {}
        for one in self._work:
            totals.setdefault(one.name, []).append(one.duration_ns)
        lines = [f"profile of {self.device.name}"]
        for name, times in sorted(totals.items(), key=lambda item: -sum(item[1])):
            total, mean = sum(times) / 1e6, sum(times) / len(times) / 1e3
            lines.append(f"  {name}: {len(times)} × {mean:.1f} µs = {total:.3f} ms")
        return "\n".join(lines)
