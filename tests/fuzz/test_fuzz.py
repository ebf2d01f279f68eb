"""The search itself: it finds what is wrong, makes it small, keeps it; and what it makes is well typed and varied."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from quernel.ir.nodes import MathFunction
from quernel.testing.fuzz import programs
from quernel.testing.fuzz.exact import exact_programs
from quernel.testing.fuzz.inexact import error_in_ulp
from quernel.testing.fuzz.programs import Program
from quernel.testing.fuzz.running import search

CONSTRUCTS = [
    "for ", "while ", "else:", "break", "continue", "return", "qn.shared", "qn.barrier", "qn.private", "qn.unroll",
    "qn.atomic.", "divmod(", "qn.fma(", "qn.bitcast(", "mixed(", " if ", " and ", "qn.f16(", "qn.bf16(", "math.sqrt(",
    "qn.vec(", "qn.block.", "Pair(", "generic(", "swapped(",
]  # fmt: skip


@functools.cache
def many_kernels() -> str:
    """The text of a few hundred random kernels, the same in each run."""
    texts = []

    @hypothesis.seed(5)
    @settings(
        max_examples=300, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(exact_programs())
    def collect(program: Program) -> None:
        texts.append(program.text.split("@qn.kernel")[1])

    collect()
    return "\n".join(texts)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_random_kernels_hold_every_construct(construct: str) -> None:
    assert many_kernels().count(construct) >= 3


def test_a_program_is_kept_whole(tmp_path: Path) -> None:
    program = find(exact_programs(), lambda made: made.grid > 0, settings=settings(database=None))
    assert Program.load(program.save(tmp_path, "why\nit failed")) == program


def test_a_wrong_backend_is_found_and_the_kernel_kept_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that is wrong about `//` of integers."""
    honest = Program.results

    def wrong(self: Program, device: str, kernel: object = None) -> dict[str, np.ndarray]:
        text = self.text.split("@qn.kernel")[1]
        results = honest(self, "reference")
        if device == "wrong" and "//" in text:
            results["out0"] = ~results["out0"].view(np.uint8)
        return results

    monkeypatch.setattr(Program, "results", wrong)
    monkeypatch.setenv("QUERNEL_NO_CACHE", "1")
    outcome = search("wrong", 300, 1, tmp_path)
    assert "out0 is" in outcome.failure
    assert outcome.kept is not None
    kept = Program.load(outcome.kept)
    kernel = kept.text.split("@qn.kernel")[1]
    assert "//" in kernel
    assert len(kernel.splitlines()) <= 20


def test_the_command_runs_kernels_in_parallel_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quernel.testing.fuzz", "--examples", "8", "--backend", "reference"]
    done = subprocess.run(
        [*command, "--workers", "2", "--seed", "7", "--keep", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 random kernels, interpreter against reference" in done.stdout
    assert "no mismatch" in done.stdout


def test_nans_are_alike_and_zeros_are_not() -> None:
    a, b = np.array([np.nan, 0.0]), np.array([-np.nan, 0.0])
    assert np.array_equal(programs.bits(a), programs.bits(b))
    assert not np.array_equal(programs.bits(np.array([0.0])), programs.bits(np.array([-0.0])))


@pytest.mark.parametrize(
    ("function", "operands", "exact", "of"),
    [
        (MathFunction.EXP, (1.0,), 2.718281828459045, "f64"),
        (MathFunction.SIN, (3.0,), 0.1411200080598672, "f64"),
        (MathFunction.POW, (2.0, 0.5), 1.4142135623730951, "f64"),
        (MathFunction.LGAMMA, (0.25,), 1.2880225246980774, "f64"),
    ],
)
def test_an_error_counts_units_of_the_last_place(
    function: MathFunction, operands: tuple[float, ...], exact: float, of: str
) -> None:
    assert error_in_ulp(function, operands, exact, of) <= 0.5
    assert 2.4 < error_in_ulp(function, operands, exact + 3 * np.spacing(exact), of) < 3.6


def test_special_values_must_be_what_c_gives() -> None:
    assert error_in_ulp(MathFunction.LOG, (-1.0,), np.nan, "f32") == 0
    assert error_in_ulp(MathFunction.LOG, (-1.0,), 0.0, "f32") == np.inf
    assert error_in_ulp(MathFunction.EXP, (1000.0,), np.inf, "f32") == 0
    assert error_in_ulp(MathFunction.EXP, (1000.0,), 3e38, "f32") == np.inf
