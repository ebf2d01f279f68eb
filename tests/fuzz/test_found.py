"""Kernels that random search once found to fail, smallest first; each must agree ever after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quernel.testing.fuzz.inexact import InexactProgram
from quernel.testing.fuzz.programs import Program

FOUND = sorted(Path(__file__).with_name("found").glob("*.txt"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_a_kernel_that_once_differed_agrees(quernel_device: Any, path: Path) -> None:
    program = Program.load(path)
    if not program.function:
        assert not program.difference(quernel_device.info.backend)
    else:
        assert not InexactProgram(program, program.function).difference(quernel_device.info.backend)
