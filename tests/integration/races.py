"""Programs that race for the same kernels, or are killed while they compile; for tests and for longer runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from quernel.store import CompilationOutcome, CompilationRecord, Environment, compilation_store
from quernel.store.record_log import read_records

__all__ = ["KERNELS", "Kills", "compiled_kernels", "kill_compiling_processes", "race_of_processes", "race_of_threads"]

NUM_KERNELS = 10

KERNELS = "import quernel as qn\n" + "".join(
    f"""
@qn.kernel
def k{number}(x: qn.Array1[qn.f64]):
    i = qn.global_id()
    total = 0.0
    for step in range({number + 3}):
        total += x[i] * step
    x[i] = total + {number}.5
"""
    for number in range(NUM_KERNELS)
)
"""A module with the kernels that everybody wants."""

CHECK = f"""
import random, sys
import numpy as np
import quernel as qn
import raced_kernels

NUMBERS = list(range({NUM_KERNELS}))

def launch(numbers):
    for number in numbers:
        x = np.arange(100.0)
        getattr(raced_kernels, f"k{{number}}").over(100)(x)
        expected = np.arange(100.0) * sum(range(number + 3)) + number + 0.5
        assert np.array_equal(x, expected), number

def launch_all(seed):
    numbers = random.Random(seed).sample(NUMBERS, len(NUMBERS))
    if seed % 2:
        with qn.device("cpu").compiling():
            for number in numbers:
                getattr(raced_kernels, f"k{{number}}").over(100)(np.arange(100.0))
    launch(numbers)
"""

PROCESS = f"""
{CHECK}
qn.device("cpu")
print("ready", flush=True)
sys.stdin.readline()
launch_all(int(sys.argv[1]))
print("done", flush=True)
"""

ONE_BY_ONE = f"""
{CHECK}
qn.device("cpu")
print("ready", flush=True)
for number in NUMBERS:
    launch([number])
    print(number, flush=True)
"""

THREADS = f"""
{CHECK}
import threading
num_threads = int(sys.argv[1])
sys.setswitchinterval(1e-6)
start = threading.Barrier(num_threads)
failures = []

def run(seed):
    try:
        start.wait()
        launch_all(seed)
    except BaseException as error:
        failures.append(error)

threads = [threading.Thread(target=run, args=(seed,)) for seed in range(num_threads)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
counts = qn.device("cpu").loader.counts()
assert counts.compiled == counts.settled == counts.registered == {NUM_KERNELS}, counts
print("done", flush=True)
"""


def prepare(folder: Path) -> dict[str, str]:
    """Writes the kernels' module; the variables of a process that works in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "raced_kernels.py").write_text(KERNELS)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("QUERNEL_")}
    path = os.pathsep.join([str(folder), *sys.path])
    return {**inherited, "PYTHONPATH": path, "QUERNEL_ENVIRONMENT": str(folder / "environment")}


def start(code: str, variables: dict[str, str], *arguments: object) -> subprocess.Popen[str]:
    """A Python process that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
    )


def race_of_processes(folder: Path, num_processes: int) -> list[str]:
    """Has processes that are all ready launch the same kernels at once; the names of those compiled, all in all."""
    variables = prepare(folder)
    running = [start(PROCESS, variables, seed) for seed in range(num_processes)]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (0, "done\n"), err
        assert err == ""
    return compiled_kernels(folder)


def race_of_threads(folder: Path, num_threads: int) -> list[str]:
    """The same with threads of one process."""
    process = start(THREADS, prepare(folder), num_threads)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (0, "done\n"), err
    return compiled_kernels(folder)


def compiled_kernels(folder: Path) -> list[str]:
    """The names in the records of all compilations, sorted."""
    records = read_records(folder / "environment" / "records")
    return sorted(
        record.kernel
        for record in records
        if isinstance(record, CompilationRecord) and record.outcome is CompilationOutcome.COMPILED
    )


class Kills:
    """What was found after each kill: how many kernels were kept by then."""

    def __init__(self) -> None:
        self.kept: list[int] = []


def kill_compiling_processes(folder: Path, count: int, seed: int = 0) -> Kills:
    """Kills a compiling process at a random moment, each time in a new environment; the store must be whole then.

    Each time the next process launches in what is left: all its results must be right.
    """
    chance = random.Random(seed)
    kills = Kills()
    for number in range(count):
        here = folder / str(number)
        variables = prepare(here)
        process = start(ONE_BY_ONE, variables)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for _ in range(chance.randrange(NUM_KERNELS)):
            process.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills.kept.append(kept_whole(here))
        following = start(PROCESS, variables, number + 1)
        out, err = following.communicate("go\n", timeout=120)
        assert (following.returncode, out) == (0, "ready\ndone\n"), (number, err)
        assert kept_whole(here) == NUM_KERNELS
    return kills


def kept_whole(folder: Path) -> int:
    """How many kernels the store has, after all of its rows and payloads were checked."""
    environment = Environment(folder / "environment")
    store = compilation_store("cpu", "any", environment=environment)
    assert store is not None
    try:
        report = store.verify()
        assert report.problems == (), report
        return store.info().num_kernels
    finally:
        environment.close()
