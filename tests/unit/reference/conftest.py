"""The interpreter, opened once."""

from __future__ import annotations

import pytest
from tests.unit.reference.builders import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Interpreter:
    return Interpreter()
