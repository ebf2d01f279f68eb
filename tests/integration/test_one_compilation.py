"""Many threads or processes that want the same kernels compile each once; a kill while compiling leaves a whole store.

`python tests/benchmarks/races.py` does the same with 32 processes and 200 kills.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.integration import races

pytest.importorskip("quernel_cpu", reason="needs the CPU backend")

EVERY_KERNEL_ONCE = sorted(f"k{number}" for number in range(races.NUM_KERNELS))


def test_processes_that_start_at_once_compile_each_kernel_once(tmp_path: Path) -> None:
    assert races.race_of_processes(tmp_path, 6) == EVERY_KERNEL_ONCE
    assert races.kept_whole(tmp_path) == races.NUM_KERNELS


def test_threads_that_start_at_once_compile_each_kernel_once(tmp_path: Path) -> None:
    assert races.race_of_threads(tmp_path, 64) == EVERY_KERNEL_ONCE


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_store_is_whole_and_the_next_process_works_after_a_kill_while_compiling(tmp_path: Path) -> None:
    kept = races.kill_compiling_processes(tmp_path, 6, seed=7).kept
    assert len(kept) == 6
    assert all(0 <= number <= races.NUM_KERNELS for number in kept)
