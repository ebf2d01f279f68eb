from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.compiler.scripted import Bench

from quernel.store import Environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


@pytest.fixture
def bench(environment: Environment) -> Bench:
    return Bench.of(environment)
