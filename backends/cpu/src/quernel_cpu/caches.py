"""The caches of this machine, and which launches touch more than they hold."""

from __future__ import annotations

import os
from functools import cache

from quernel import settings

__all__ = ["last_level_cache_bytes", "streaming_bytes", "streaming_feature", "streams"]

_PREFIX = "streaming="
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LEAST_BYTES = 1 << 20
"""A launch that touches less fits into the caches of any machine, which are not asked for then."""


def streaming_feature(bytes_per_thread: int) -> str:
    """The header's flag of a kernel whose stores may go past the caches, and of which each thread touches so much."""
    return f"{_PREFIX}{bytes_per_thread}"


def streaming_bytes(features: tuple[str, ...]) -> int:
    """How much each thread of the kernel with these flags touches; 0 if its stores never go past the caches."""
    return sum(int(feature.removeprefix(_PREFIX)) for feature in features if feature.startswith(_PREFIX))


def streams(footprint_bytes: int) -> bool:
    """Whether the stores of a launch that touches so much go past the caches: if it is more than the last level holds.

    Not where the size of that is unknown, nor where the settings say no.
    """
    if footprint_bytes < _LEAST_BYTES or not settings.cpu_streaming():
        return False
    return 0 < last_level_cache_bytes() < footprint_bytes


@cache
def last_level_cache_bytes() -> int:
    """The caches of the last level of all cores that this process may use, together; 0 where that cannot be told."""
    if not hasattr(os, "sched_getaffinity"):
        return 0
    left, total = set(os.sched_getaffinity(0)), 0
    try:
        while left:
            size, sharing = _last_cache(f"/sys/devices/system/cpu/cpu{left.pop()}/cache")
            total += size
            left -= sharing
    except (OSError, ValueError):
        return 0
    return total


def _last_cache(folder: str) -> tuple[int, set[int]]:
    """Size of a core's cache of the highest level, and the cores that share it.

    Raises:
        OSError, ValueError: the system does not tell.
    """
    names = [name for name in os.listdir(folder) if name.startswith("index")]
    last = max(names, key=lambda name: int(_text(folder, name, "level")))
    size = _text(folder, last, "size")
    return int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1), _cores(_text(folder, last, "shared_cpu_list"))


def _cores(listed: str) -> set[int]:
    """`0-3,8` as numbers."""
    cores: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def _text(*parts: str) -> str:
    with open(os.path.join(*parts), encoding="ascii") as file:
        return file.read().strip()
