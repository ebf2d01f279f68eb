"""Long runs: many random kernels in parallel processes, whose failures are shrunk and kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from quernel.testing.fuzz.programs import Program

__all__ = ["Outcome", "check_exact", "check_inexact", "fuzz", "search", "work"]

_REPORT_EVERY_S: Final = 10.0
_POLL_EVERY_S: Final = 0.05
_SHORT_SEARCH: Final = 100
"""Kernels of one search where there are several settings."""


@attrs.frozen
class Outcome:
    """What a search found.

    Attributes:
        examples: kernels that ran.
        failure: what went wrong with the smallest kernel that fails, or an empty string.
        kept: where that kernel is kept, if one failed.
    """

    examples: int
    failure: str = ""
    kept: Path | None = None


def check_exact(program: Program, backend: str) -> None:
    """Holds an exact program against the interpreter.

    Raises:
        AssertionError: a result differs.
    """
    difference = program.difference(backend)
    assert not difference, difference


def check_inexact(program: Any, backend: str) -> None:
    """Holds an inexact program against its bound, on the backend and in the interpreter.

    Raises:
        AssertionError: a value is too far from the exact one.
    """
    for name in ("reference", backend):
        difference = program.difference(name)
        assert not difference, difference


def search(
    backend: str, examples: int, seed: int, keep: Path, progress: Callable[[int], None] = lambda _: None
) -> Outcome:
    """Runs random kernels in this process, three exact ones to one inexact, and keeps the smallest that fails."""
    import hypothesis
    from hypothesis import HealthCheck, Phase, strategies

    from quernel.testing.fuzz.exact import exact_programs
    from quernel.testing.fuzz.inexact import inexact_programs

    ran = 0
    last: list[tuple[Program, str]] = []

    def one(program: Any) -> None:
        nonlocal ran
        ran += 1
        try:
            if isinstance(program, Program):
                check_exact(program, backend)
            else:
                check_inexact(program, backend)
        except Exception as error:
            kernel = program if isinstance(program, Program) else program.program
            last[:] = [(kernel, f"{type(error).__name__}: {error}")]
            raise
        progress(ran)

    exact = exact_programs()
    run = hypothesis.seed(seed)(
        hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )(hypothesis.given(strategies.one_of(exact, exact, exact, inexact_programs()))(one))
    )
    try:
        run()
    except Exception as error:
        if not last:
            raise
        kernel, failure = last[0]
        return Outcome(ran, failure or str(error), kernel.save(keep, failure))
    return Outcome(ran)


def fuzz(
    backend: str, examples: int, workers: int, seed: int, keep: Path, settings: tuple[dict[str, str], ...] = ({},)
) -> int:
    """Runs searches in several processes at a time, and reports; the exit status, 0 if no kernel failed.

    `settings`: environment variables of the processes; under each the same kernels are run, so that those of one number
    agree among all settings if each agrees with the interpreter.
    """
    # Short searches: under some settings a kernel takes longer, and no core should wait for the last ones.
    num_seeds = max(1, min(-(-examples // _SHORT_SEARCH), examples)) if len(settings) > 1 else workers
    share = -(-examples // num_seeds)
    start = time.monotonic()
    command = [sys.executable, "-m", "quernel.testing.fuzz", "--backend", backend, "--examples", str(share)]
    waiting = [(own, seed + number) for number in range(num_seeds) for own in settings]
    waiting.reverse()
    running: list[subprocess.Popen[bytes]] = []
    failed = 0
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                own, its_seed = waiting.pop()
                environment = {**os.environ, "QUERNEL_NO_CACHE": "1", "QUERNEL_NUM_THREADS": "1", **own}
                arguments = [*command, "--worker", "--seed", str(its_seed), "--keep", str(keep)]
                running.append(subprocess.Popen(arguments, env=environment))
            done = [process for process in running if process.poll() is not None]
            failed += sum(process.returncode != 0 for process in done)
            running = [process for process in running if process not in done]
            if not done:
                time.sleep(_POLL_EVERY_S)
    finally:
        for process in running:
            process.kill()
    seconds = time.monotonic() - start
    num_searches = num_seeds * len(settings)
    verdict = "no mismatch" if not failed else f"{failed} of {num_searches} searches failed; see {keep}"
    under = f" under each of {len(settings)} settings" if len(settings) > 1 else ""
    kernels = f"{share * num_seeds} random kernels, interpreter against {backend}{under}"
    print(f"{kernels}, {seconds:.0f} s, seed {seed}: {verdict}")
    return int(failed > 0)


def work(backend: str, examples: int, seed: int, keep: Path) -> int:
    """One search, with its progress and its failure on the terminal; the exit status."""
    said = time.monotonic()

    def progress(ran: int) -> None:
        nonlocal said
        if time.monotonic() - said > _REPORT_EVERY_S:
            said = time.monotonic()
            print(f"  seed {seed}: {ran} of {examples}", flush=True)

    outcome = search(backend, examples, seed, keep, progress)
    if outcome.failure:
        print(f"seed {seed}: {outcome.failure}\n  kept as {outcome.kept}", flush=True)
    return int(bool(outcome.failure))
