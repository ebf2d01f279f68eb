"""Memory of devices that work in the host's: where it starts, what pages it has, and that no line of it is shared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quernel.errors import DeviceError
from quernel.runtime.host_memory import HostMemoryOperations
from quernel.runtime.operations import DeviceInfo

NO_TARGET: Any = None
LINE, HUGE_PAGE = 64, 1 << 21
SMAPS = Path("/proc/self/smaps")


class Operations(HostMemoryOperations[Any]):
    def launch(self, *arguments: Any) -> None: ...


def flags_of(address: int) -> set[str]:
    """The system's flags of the mapping that holds an address."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if bounds:
            inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    return set()


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 1000, 1 << 20, (1 << 22) - 1])
def test_memory_starts_at_a_cache_line_and_shares_its_last_one_with_nothing(nbytes: int) -> None:
    operations = Operations(DeviceInfo("scripted", 0, "host", "cpu"), NO_TARGET)
    for _ in range(8):
        memory = operations.allocate(nbytes)
        assert memory.address % LINE == 0
        assert len(memory.handle) == nbytes
        whole = memory.handle.base
        assert memory.address + -(-nbytes // LINE) * LINE <= whole.ctypes.data + whole.nbytes


def test_large_memory_starts_at_a_huge_page_and_asks_for_such() -> None:
    if not SMAPS.exists() or not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("needs Linux with huge pages")
    memory = Operations(DeviceInfo("scripted", 0, "host", "cpu"), NO_TARGET).allocate(3 * HUGE_PAGE)
    assert memory.address % HUGE_PAGE == 0
    assert "hg" in flags_of(memory.address)
    assert "hg" in flags_of(memory.address + 3 * HUGE_PAGE - 1)


def test_no_memory_has_no_address() -> None:
    memory = Operations(DeviceInfo("scripted", 0, "host", "cpu"), NO_TARGET).allocate(0)
    assert (memory.address, memory.nbytes) == (0, 0)


def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(DeviceError, match="no host memory for"):
        Operations(DeviceInfo("scripted", 0, "host", "cpu"), NO_TARGET).allocate(1 << 62)
