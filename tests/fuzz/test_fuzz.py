"""The search itself: it finds what is wrong, makes it small, keeps it; and what it makes is well typed and varied."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import time
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from quernel.ir.nodes import MathFunction
from quernel.testing.fuzz import programs
from quernel.testing.fuzz.exact import MOST_PRIVATE_BYTES, exact_programs
from quernel.testing.fuzz.inexact import InexactProgram, error_in_ulp
from quernel.testing.fuzz.programs import Program
from quernel.testing.fuzz.running import Outcome, search, work

CONSTRUCTS = [
    "for ", "while ", "else:", "break", "continue", "return", "qn.shared", "qn.barrier", "qn.private", "qn.unroll",
    "qn.atomic.", "divmod(", "qn.fma(", "qn.bitcast(", "mixed(", " if ", " and ", "qn.f16(", "qn.bf16(", "math.sqrt(",
    "qn.vec(", "qn.block.", "Pair(", "generic(", "swapped(",
]  # fmt: skip


@functools.cache
def many_programs() -> list[Program]:
    """A few hundred random programs, the same in each run."""
    made = []

    @hypothesis.seed(5)
    @settings(
        max_examples=300, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(exact_programs())
    def collect(program: Program) -> None:
        made.append(program)

    collect()
    return made


def many_kernels() -> str:
    """The text of their kernels."""
    return "\n".join(program.text.split("@qn.kernel")[1] for program in many_programs())


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_random_kernels_hold_every_construct(construct: str) -> None:
    assert many_kernels().count(construct) >= 3


def test_a_program_is_kept_whole(tmp_path: Path) -> None:
    program = find(exact_programs(), lambda made: made.grid > 0, settings=settings(database=None))
    assert Program.load(program.save(tmp_path, "why\nit failed")) == program


def test_a_wrong_backend_is_found_and_the_kernel_kept_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that is wrong about `//`, and an interpreter that has no need to run."""

    def results(program: Program, device: str, kernel: object = None) -> dict[str, np.ndarray]:
        return {"out0": np.array([device == "wrong" and "//" in program.text.split("@qn.kernel")[1]])}

    monkeypatch.setattr(Program, "results", results)
    monkeypatch.setattr(InexactProgram, "difference", lambda *_: "")
    outcome = search("wrong", 300, 1, tmp_path, shrink_seconds=10)
    assert "out0 is" in outcome.failure
    assert outcome.kept is not None
    kept = Program.load(outcome.kept)
    kernel = kept.text.split("@qn.kernel")[1]
    assert "//" in kernel
    assert len(kernel.splitlines()) <= 20


@pytest.fixture
def wrong_soon(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """A slow backend on which every kernel fails once some have run; the programs that failed."""
    failed: list[Program] = []
    left = iter(range(10))

    def difference(program: Program, backend: str) -> str:
        time.sleep(0.01)
        if isinstance(next(left, None), int):
            return ""
        failed.append(program)
        return f"differs in {len(program.text)}"

    monkeypatch.setattr(Program, "difference", difference)
    monkeypatch.setattr(InexactProgram, "difference", lambda *_: "")
    return failed


@pytest.mark.parametrize("seconds", [0, 2])
def test_what_fails_is_kept_at_once_and_made_smaller_for_as_long_as_said(
    tmp_path: Path, wrong_soon: list[Program], seconds: float
) -> None:
    seen: list[tuple[Program, float]] = []

    def found(outcome: Outcome) -> None:
        assert outcome.kept is not None
        seen.append((Program.load(outcome.kept), time.monotonic()))

    outcome = search("wrong", 300, 4, tmp_path, shrink_seconds=seconds, found=found)
    took = time.monotonic() - seen[0][1]
    smallest = min(len(program.text) for program in wrong_soon)
    assert [program for program, _ in seen] == wrong_soon[:1]
    assert outcome.examples > 10
    assert outcome.failure.startswith(f"AssertionError: differs in {smallest}\n")
    assert list(tmp_path.iterdir()) == [outcome.kept]
    assert outcome.kept is not None
    assert len(Program.load(outcome.kept).text) == smallest
    assert took < seconds + 10
    assert (smallest < len(wrong_soon[0].text)) == (seconds > 0) == (len(wrong_soon) > 1)


def test_what_fails_is_printed_before_and_after_it_is_made_smaller(
    tmp_path: Path, wrong_soon: list[Program], capsys: pytest.CaptureFixture[str]
) -> None:
    assert work("wrong", 300, 4, tmp_path, shrink_seconds=0) == 1
    path = next(tmp_path.iterdir())
    first, then = capsys.readouterr().out.split("  made smaller for up to 0 s\n")
    assert first.startswith("seed 4: AssertionError: differs in ")
    assert first.endswith(f"\n  kept as {path}\n")
    assert then == first.replace("seed 4:", "seed 4, made smaller:")


@pytest.mark.parametrize("given", ["-1", "nan", "long"])
def test_the_time_for_making_smaller_is_a_number_and_not_negative(given: str) -> None:
    command = [sys.executable, "-m", "quernel.testing.fuzz", "--shrink-seconds", given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert f"argument --shrink-seconds: '{given}' is no number of seconds, 0 or more" in done.stderr


def test_private_arrays_take_pages_and_never_more_than_devices_have() -> None:
    sizes = [private_bytes(program) for program in many_programs()]
    assert max(sizes) <= MOST_PRIVATE_BYTES
    assert sum(size > 4096 for size in sizes) > len(sizes) // 50
    assert any(size > MOST_PRIVATE_BYTES - 200 for size in sizes)


def private_bytes(program: Program) -> int:
    elements = {name: of.removeprefix("packed ") for name, of, _ in program.arrays}
    total = 0
    for count, made in re.findall(r"qn\.private\((\d+), (.+)\)", program.text):
        of = elements["s0"] if made == "Record" else elements["p0"] if "vec" in made else made.removeprefix("qn.")
        total += int(count) * programs.element_bytes(of)
    return total


@pytest.mark.parametrize(
    ("described", "size"), [("i16", 2), ("f32*4", 16), ("a:i8 b:f64*2", 24), ("packed a:i8 b:f64*2", 17)]
)
def test_sizes_of_elements_are_those_of_c(described: str, size: int) -> None:
    assert programs.element_bytes(described) == size


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
