"""Long runs: many random kernels in parallel processes, whose failures are shrunk and kept."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from quernel.testing.fuzz.programs import Program

__all__ = ["SHRINK_SECONDS", "Outcome", "check_exact", "check_inexact", "fuzz", "search", "work"]

SHRINK_SECONDS: Final = 120.0
"""For how long a kernel that fails is made smaller, unless said otherwise."""

_REPORT_EVERY_S: Final = 10.0
_POLL_EVERY_S: Final = 0.05
_SHORT_SEARCH: Final = 100
"""Kernels of one search where there are several settings."""


@attrs.frozen
class Outcome:
    """What a search found.

    Attributes:
        examples: kernels that ran until one failed, or all.
        failure: what went wrong with the smallest kernel that fails, or an empty string.
        kept: where that kernel is kept, if one failed.
    """

    examples: int
    failure: str = ""
    kept: Path | None = None


class _SmallEnough(BaseException):
    """Ends a search whose time is over. Hypothesis passes on what is no `Exception`, as it does Ctrl-C."""


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
    backend: str,
    examples: int,
    seed: int,
    keep: Path,
    progress: Callable[[int], None] = lambda _: None,
    *,
    shrink_seconds: float = SHRINK_SECONDS,
    found: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Runs random kernels in this process, three exact ones to one inexact, and keeps the smallest that fails.

    The first that fails is kept at once, and `found` is told of it. It is then made smaller for as many seconds as
    said, and at most one run longer; each smaller one that fails takes the place of the one that was kept.
    """
    import hypothesis
    from hypothesis import HealthCheck, Phase, strategies

    from quernel.testing.fuzz.exact import exact_programs
    from quernel.testing.fuzz.inexact import inexact_programs

    ran = 0
    end = math.inf
    smallest: tuple[Program, Outcome] | None = None

    def failed(kernel: Program, failure: str) -> None:
        nonlocal end, smallest
        if smallest is not None and len(kernel.text) > len(smallest[0].text):
            return
        outcome = Outcome(ran, failure, kernel.save(keep, failure))
        if smallest is None:
            found(outcome)
            end = time.monotonic() + shrink_seconds
        elif (earlier := smallest[1].kept) is not None and earlier != outcome.kept:
            earlier.unlink(missing_ok=True)
        smallest = kernel, outcome

    def one(program: Any) -> None:
        nonlocal ran
        if time.monotonic() > end:
            raise _SmallEnough
        ran += smallest is None
        try:
            if isinstance(program, Program):
                check_exact(program, backend)
            else:
                check_inexact(program, backend)
        except Exception as error:
            failed(program if isinstance(program, Program) else program.program, f"{type(error).__name__}: {error}")
            raise
        if smallest is None:
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
    except (Exception, _SmallEnough):
        if smallest is None:
            raise
        return smallest[1]
    return Outcome(ran)


def fuzz(
    backend: str,
    examples: int,
    workers: int,
    seed: int,
    keep: Path,
    settings: tuple[dict[str, str], ...] = ({},),
    *,
    shrink_seconds: float = SHRINK_SECONDS,
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
    command += ["--shrink-seconds", str(shrink_seconds)]
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


def work(backend: str, examples: int, seed: int, keep: Path, *, shrink_seconds: float = SHRINK_SECONDS) -> int:
    """One search, with its progress and its failure on the terminal; the exit status."""
    said = time.monotonic()

    def progress(ran: int) -> None:
        nonlocal said
        if time.monotonic() - said > _REPORT_EVERY_S:
            said = time.monotonic()
            print(f"  seed {seed}: {ran} of {examples}", flush=True)

    def found(outcome: Outcome) -> None:
        print(f"seed {seed}: {outcome.failure}\n  kept as {outcome.kept}", flush=True)
        print(f"  made smaller for up to {shrink_seconds:g} s", flush=True)

    outcome = search(backend, examples, seed, keep, progress, shrink_seconds=shrink_seconds, found=found)
    if outcome.failure:
        print(f"seed {seed}, made smaller: {outcome.failure}\n  kept as {outcome.kept}", flush=True)
    return int(bool(outcome.failure))
