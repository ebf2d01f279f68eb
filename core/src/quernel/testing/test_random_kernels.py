"""Random kernels give what the interpreter gives, bit for bit, and mathematical functions keep their bounds.

A few here; `python -m quernel.testing.fuzz` runs many.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings

from quernel.testing.fuzz.exact import exact_programs
from quernel.testing.fuzz.inexact import InexactProgram, inexact_programs
from quernel.testing.fuzz.programs import Program

NUM_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "40"))
few = functools.partial(
    settings,
    max_examples=NUM_EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_NO_CACHE", "1")


@pytest.mark.quernel_needs("exact_f32", "exact_f64", "f64", "f16", "bf16", "int64_atomics", "barriers")
@few()
@given(program=exact_programs())
def test_random_kernels_give_the_same_bits_as_the_interpreter(quernel_device: Any, program: Program) -> None:
    note(program.text)
    assert not program.difference(quernel_device.info.backend)


@pytest.mark.quernel_needs("f64", "f16", "bf16")
@few()
@given(program=inexact_programs())
def test_random_values_of_functions_keep_their_bound(quernel_device: Any, program: InexactProgram) -> None:
    note(program.program.text)
    assert not program.difference(quernel_device.info.backend)
