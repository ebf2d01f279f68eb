"""What the texts mean, by running the tests of GPUs on the host; in a process of its own, as the driver is replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.cuda.emulation import COMPILER

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    "chosen",
    [
        "every_point and (5-1 or 257-1 or 1023-0) or range or strided",
        "two_axes and (shape1 or shape2) or three_axes and shape1",
        "warps or shared_memory or atomics",
        "checked or prints or fast_mathematics",
    ],
)
def test_kernels_mean_on_the_host_what_they_mean_on_a_gpu(chosen: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.unit.cuda.emulated"]
    ran = subprocess.run(
        [*command, "-k", chosen, "tests/gpu/test_kernels.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
