"""Our own worker processes: what a lost one costs, what cannot disturb them, and how they end."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.unit.compiler.scripted import Bench, ScriptedArtifact, ScriptedTarget, ScriptedVariant, definition
from tests.unit.compiler.test_workers import Elsewhere

from quernel.compiler import executors, processes, worker_process
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.processes import CompilationProcesses
from quernel.compiler.results import WorkerLostError
from quernel.compiler.worker_process import WorkerProcess, packed_call
from quernel.errors import CompilationError
from quernel.store import Environment

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs signals and fork")


@pytest.fixture
def pool() -> Iterator[CompilationProcesses]:
    made = CompilationProcesses(1)
    yield made
    made.shutdown(cancel_futures=True, timeout_s=5)


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(holds: Callable[[], bool], limit_s: float = 30) -> None:
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.01)


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raise_odd() -> None:
    raise OddError(1, 2)


def print_everywhere() -> str:
    print("from Python")
    print("to errors", file=sys.stderr)
    os.write(1, b"from C\n")
    return "answer"


def segfault() -> None:
    ctypes.string_at(1)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_processes_run_tasks_and_hand_back_results_and_errors(pool: CompilationProcesses) -> None:
    assert pool.submit(divmod, 7, 2).result(60) == (3, 1)
    with pytest.raises(ZeroDivisionError, match="by zero"):
        pool.submit(divmod, 7, 0).result(60)
    assert pool.submit(os.getpid).result(60) != os.getpid()


def test_processes_are_kept_and_started_only_while_there_is_work_for_them() -> None:
    pool = CompilationProcesses(3)
    pids = set()
    for _ in range(5):
        pids.add(pool.submit(os.getpid).result(60))
        wait_until(lambda: pool.num_ready == 1)
    assert len(pids) == 1
    pool.shutdown(timeout_s=5)


def test_processes_work_at_once_up_to_their_number() -> None:
    pool = CompilationProcesses(2)
    futures = [pool.submit(os.getpid) for _ in range(2)] + [pool.submit(time.sleep, 0.2) for _ in range(4)]
    for future in futures:
        future.result(60)
    assert pool.num_workers == 2
    pool.shutdown(timeout_s=5)


def test_what_a_task_prints_does_not_disturb_its_answer(
    pool: CompilationProcesses, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        assert pool.submit(print_everywhere).result(60) == "answer"
    assert pool.submit(len, "abc").result(60) == 3
    assert caplog.messages.count("a compile worker wrote: from Python") == 3
    assert caplog.messages.count("a compile worker wrote: from C") == 3
    assert capfd.readouterr().out == ""


def test_start_that_prints_does_not_disturb_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nprint('hello' * 1000)\nos.write(1, b'\\0\\1\\0quernel')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = WorkerProcess()
    assert worker.call(packed_call(len, ("abc",), {})) == 3
    worker.end(5)


def test_large_calls_and_answers_pass(pool: CompilationProcesses) -> None:
    large = os.urandom(1 << 20) * 40
    assert pool.submit(bytes.__add__, large, b"end").result(60) == large + b"end"


def test_answer_that_cannot_be_sent_is_an_error_that_says_so(pool: CompilationProcesses) -> None:
    with pytest.raises(RuntimeError, match=r"the result cannot be sent: .*lock"):
        pool.submit(threading.Lock).result(60)
    with pytest.raises(RuntimeError, match=r"OddError: 1 and 2 \(which cannot be sent\)"):
        pool.submit(raise_odd).result(60)
    assert pool.submit(len, "abc").result(60) == 3


def test_call_that_does_not_pickle_is_refused_at_once(pool: CompilationProcesses) -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match=r"local|lambda"):
        pool.submit(lambda: None)
    assert pool.num_workers == 0


def test_worker_finds_modules_and_settings_of_the_moment(
    pool: CompilationProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pool.submit(os.getenv, "QUERNEL_RECORDS").result(60) is None
    (tmp_path / "a_module_of_today.py").write_text("def answer(): return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("QUERNEL_RECORDS", "full")
    from a_module_of_today import answer  # type: ignore[import-not-found]

    assert pool.submit(answer).result(60) == 42
    assert pool.submit(os.getenv, "QUERNEL_RECORDS").result(60) == "full"
    monkeypatch.delenv("QUERNEL_RECORDS")
    assert pool.submit(os.getenv, "QUERNEL_RECORDS").result(60) is None


# --- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "manner"),
    [
        ((segfault,), "was killed by SIGSEGV"),
        ((os.abort,), "was killed by SIGABRT"),
        ((os._exit, 3), "ended with status 3"),
        ((signal.raise_signal, signal.SIGKILL), "was killed by SIGKILL"),
    ],
)
def test_lost_worker_costs_its_task_only(
    pool: CompilationProcesses, call: tuple[Callable[..., Any], Any], manner: str
) -> None:
    before, lost, after = pool.submit(len, "abc"), pool.submit(*call), pool.submit(len, "abcd")
    assert before.result(60) == 3
    with pytest.raises(WorkerLostError, match=f"^the compile worker {manner}$"):
        lost.result(60)
    assert after.result(60) == 4


def test_loss_shows_where_the_worker_was(pool: CompilationProcesses) -> None:
    with pytest.raises(WorkerLostError, match="SIGSEGV") as caught:
        pool.submit(segfault).result(60)
    assert any("in segfault" in line for line in caught.value.lines)


def test_worker_that_hangs_is_ended(pool: CompilationProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = pool.submit(os.getpid).result(60)
    monkeypatch.setenv("QUERNEL_COMPILE_LIMIT", "0.2")
    with pytest.raises(WorkerLostError, match=r"^the compile worker took longer than 0\.2 s and was ended$") as caught:
        pool.submit(time.sleep, 1000).result(60)
    assert "QUERNEL_COMPILE_LIMIT" in caught.value.fix
    assert not is_alive(pid)
    monkeypatch.delenv("QUERNEL_COMPILE_LIMIT")
    assert pool.submit(time.sleep, 0.4).result(60) is None


def test_time_that_runs_out_as_the_answer_comes_costs_no_other_task(
    pool: CompilationProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.submit(len, "abc").result(60)
    read = worker_process.read_frame

    def read_late(handle: int) -> bytes | None:
        frame = read(handle)
        time.sleep(0.6)
        return frame

    with monkeypatch.context() as patch:
        patch.setattr(worker_process, "read_frame", read_late)
        patch.setenv("QUERNEL_COMPILE_LIMIT", "0.3")
        with pytest.raises(WorkerLostError, match=r"took longer than 0\.3 s and was ended"):
            pool.submit(len, "abcd").result(60)
    assert pool.submit(len, "abcde").result(60) == 5


def test_timer_that_is_late_ends_nobody() -> None:
    ended: list[int] = []
    kept, over = worker_process._Limit(1.0), worker_process._Limit(1.0)
    kept.keep()
    kept.run_out(lambda: ended.append(1))
    assert (kept.is_over, ended) == (False, [])
    over.run_out(lambda: ended.append(2))
    over.keep()
    assert (over.is_over, ended) == (True, [2])


def test_worker_killed_while_idle_costs_the_next_task(pool: CompilationProcesses) -> None:
    pid = pool.submit(os.getpid).result(60)
    wait_until(lambda: pool.num_ready == 1)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        pool.submit(len, "abc").result(60)
    assert pool.submit(len, "abc").result(60) == 3


def test_tasks_fail_where_no_process_starts(pool: CompilationProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    futures = [pool.submit(len, "abc") for _ in range(2)]
    for future in futures:
        with pytest.raises(BrokenExecutor, match="/nowhere/python"):
            future.result(60)
    with pytest.raises(BrokenExecutor, match="/nowhere/python"):
        pool.submit(len, "abc")


def test_start_that_fails_says_what_the_worker_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(2, b'no luck today')\nos._exit(7)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WorkerLostError, match="ended with status 7") as caught:
        WorkerProcess()
    assert caught.value.lines == ("no luck today",)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_shutdown_runs_what_is_queued_and_ends_the_processes() -> None:
    pool = CompilationProcesses(1)
    pid = pool.submit(os.getpid)
    futures = [pool.submit(abs, -number) for number in range(5)]
    pool.shutdown()
    assert [future.result(0) for future in futures] == [0, 1, 2, 3, 4]
    assert not is_alive(pid.result(0))
    with pytest.raises(RuntimeError, match="the compile workers have ended"):
        pool.submit(abs, -1)


def test_shutdown_waits_no_longer_than_it_may() -> None:
    pool = CompilationProcesses(1)
    pid = pool.submit(os.getpid).result(60)
    running = pool.submit(time.sleep, 1000)
    queued = pool.submit(abs, -1)
    wait_until(running.running)
    start_s = time.monotonic()
    pool.shutdown(cancel_futures=True, timeout_s=0.1)
    assert time.monotonic() - start_s < 20
    assert queued.cancelled()
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        running.result(60)
    assert not is_alive(pid)


def test_idle_process_ends_after_a_while_and_another_starts_when_needed(
    pool: CompilationProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_IDLE_S", 0.05)
    first = pool.submit(os.getpid).result(60)
    wait_until(lambda: not is_alive(first))
    wait_until(lambda: pool.num_workers == 0)
    assert pool.submit(os.getpid).result(60) != first


def test_worker_ends_when_its_input_does_even_amid_a_call() -> None:
    worker = WorkerProcess()
    losses: list[WorkerLostError] = []

    def call() -> None:
        try:
            worker.call(packed_call(time.sleep, (1000,), {}))
        except WorkerLostError as loss:
            losses.append(loss)

    caller = threading.Thread(target=call)
    caller.start()
    time.sleep(0.3)
    worker._inbox.close()
    wait_until(lambda: not is_alive(worker.pid))
    caller.join(20)
    assert len(losses) == 1
    worker.end(5)


def start(code: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


BUSY = """
import os, sys, time
from quernel.compiler.processes import CompilationProcesses
pool = CompilationProcesses(2)
print(pool.submit(os.getpid).result(60), flush=True)
running = pool.submit(time.sleep, 1000)
while not running.running():
    time.sleep(0.01)
print("busy", flush=True)
"""


def test_killed_parent_leaves_no_worker() -> None:
    parent = start(BUSY + "time.sleep(1000)")
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "busy\n"
    assert is_alive(pid)
    parent.kill()
    parent.communicate(timeout=60)
    wait_until(lambda: not is_alive(pid))


def test_parent_that_ends_leaves_no_worker_and_says_nothing() -> None:
    parent = start(BUSY)
    out, err = parent.communicate(timeout=60)
    assert (parent.returncode, err) == (0, "")
    wait_until(lambda: not is_alive(int(out.split()[0])))


def test_own_processes_end_with_the_program() -> None:
    parent = start("""
import os, time
from quernel.compiler import own_workers
own_workers.num_cores = lambda: 2
pool = own_workers.compilation_processes()
pool.grow(1)
print(pool.submit(os.getpid).result(60))
pool.submit(time.sleep, 0.2)
""")
    out, err = parent.communicate(timeout=60)
    assert (parent.returncode, err) == (0, "")
    wait_until(lambda: not is_alive(int(out)))


def test_keyboard_interrupt_is_the_parents_alone() -> None:
    parent = start(BUSY + "running.result(1000)", process_group=0)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert parent.stdout.readline() == "busy\n"
    os.killpg(parent.pid, signal.SIGINT)
    _, err = parent.communicate(timeout=60)
    assert err.count("Traceback") == 1
    assert err.endswith("KeyboardInterrupt\n")
    wait_until(lambda: not is_alive(pid))


def test_forked_child_has_processes_of_its_own_and_keeps_none_of_the_parents() -> None:
    parent = start(
        """
import os, sys, time
from quernel.compiler.processes import CompilationProcesses
pool = CompilationProcesses(1)
mine = pool.submit(os.getpid).result(60)
child = os.fork()
if not child:
    theirs = pool.submit(os.getpid).result(60)
    print(mine, theirs, os.getpid(), pool.num_workers, flush=True)
    time.sleep(1000)
assert pool.submit(os.getpid).result(60) == mine
sys.stdin.read()
os._exit(0)
""",
        stdin=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    mine, theirs, child, num_workers = map(int, parent.stdout.readline().split())
    try:
        assert mine != theirs
        assert num_workers == 1
        parent.stdin.close()
        assert parent.wait(60) == 0
        wait_until(lambda: not is_alive(mine))  # although the child lives on
        assert is_alive(theirs)
    finally:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: not is_alive(theirs))


def test_unguarded_script_may_use_them(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text("""
import os
from quernel.compiler.processes import CompilationProcesses
print("once", flush=True)
print(CompilationProcesses(2).submit(len, "abc").result(60))
""")
    shown = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert (shown.stdout, shown.stderr) == ("once\n3\n", "")


# --- in a batch -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Crashing(Elsewhere):
    """Kernels by certain names end the process that finalizes them, if it is not the caller's."""

    scales_with = "processes"
    home: int = 0

    def source(self, lowered: str) -> None:
        return None

    def finalize(self, id: ArtifactId[ScriptedVariant], lowered: str) -> ScriptedArtifact:  # noqa: A002
        if os.getpid() != self.home and id.kernel.name in ("crash", "hang"):
            time.sleep(1000) if id.kernel.name == "hang" else segfault()
        if id.kernel.name.startswith("slow"):
            time.sleep(0.3)
        return super().finalize(id, lowered)


def bench_of(environment: Environment, workers: CompilationProcesses | None) -> Bench:
    bench = Bench.of(environment, workers=workers)
    target = bench.loader.target
    assert isinstance(target, ScriptedTarget)
    target.compiler = Crashing(home=os.getpid())
    return bench


def test_crash_costs_its_kernel_only(environment: Environment) -> None:
    pool = CompilationProcesses(2)
    bench = bench_of(environment, pool)
    for number, name in enumerate(("a", "b", "crash", "c")):
        bench.enqueue(name, definition(name, number + 5))
    assert bench.loader.compile_queued() == 3
    with pytest.raises(
        CompilationError, match=r"^the compile worker was killed by SIGSEGV while compiling crash"
    ) as caught:
        bench.load("crash")
    assert any("in finalize" in line for line in caught.value.chain)
    assert bench.load("d", definition("d", 50)).loaded.payload == b"'lowered 50'"
    pool.shutdown(timeout_s=5)


def test_hanging_kernel_is_given_up(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = CompilationProcesses(1)
    pool.submit(len, "abc").result(60)
    monkeypatch.setenv("QUERNEL_COMPILE_LIMIT", "0.5")
    bench = bench_of(environment, pool)
    with pytest.raises(CompilationError, match=r"took longer than 0\.5 s and was ended while compiling hang"):
        bench.load("hang")
    pool.shutdown(timeout_s=5)


@pytest.fixture
def own_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompilationProcesses]:
    pool = CompilationProcesses(2, is_lazy=True)
    monkeypatch.setattr(executors, "compilation_processes", lambda: pool)
    yield pool
    pool.shutdown(cancel_futures=True, timeout_s=5)


def test_small_batch_starts_no_process(environment: Environment, own_processes: CompilationProcesses) -> None:
    bench = bench_of(environment, None)
    for number in range(10):
        bench.enqueue(f"k{number}", definition(f"k{number}", number + 5))
    assert bench.loader.compile_queued() == 10
    assert own_processes.num_workers == 0
    assert {record.worker.partition("/")[0] for record in bench.records.kernels} == {str(os.getpid())}


def test_large_batch_is_shared_with_processes_once_they_are_up(
    environment: Environment, own_processes: CompilationProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_shared = threading.Event()
    perform_there, perform_here = own_processes._perform, executors._perform

    def note(worker: WorkerProcess, task: Any) -> bool:
        if not task.future.cancelled():
            is_shared.set()
        return perform_there(worker, task)

    def wait_for_company(step: Any) -> object:
        if own_processes.num_workers:  # they are on their way, for which a busy machine may take long
            assert is_shared.wait(60)
        return perform_here(step)

    monkeypatch.setattr(own_processes, "_perform", note)
    monkeypatch.setattr(executors, "_perform", wait_for_company)
    bench = bench_of(environment, None)
    for number in range(60):
        bench.enqueue(f"slow{number}", definition(f"slow{number}", number + 5))
    assert bench.loader.compile_queued() == 60
    workers = {record.worker.partition("/")[0] for record in bench.records.kernels}
    assert str(os.getpid()) in workers
    assert len(workers) > 1


def test_processes_that_are_up_take_part_in_a_small_batch(
    environment: Environment, own_processes: CompilationProcesses
) -> None:
    own_processes.grow(2)
    assert own_processes.wait_until_ready(2, 60)
    bench = bench_of(environment, None)
    for number in range(4):
        bench.enqueue(f"slow{number}", definition(f"slow{number}", number + 5))
    assert bench.loader.compile_queued() == 4
    assert len({record.worker.partition("/")[0] for record in bench.records.kernels}) == 3


def test_batch_ends_on_the_calling_thread_where_no_process_starts(
    environment: Environment,
    own_processes: CompilationProcesses,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    bench = bench_of(environment, None)
    for number in range(6):
        bench.enqueue(f"slow{number}", definition(f"slow{number}", number + 5))
    with caplog.at_level(logging.WARNING):
        assert bench.loader.compile_queued() == 6
    assert "compiling without worker processes, as one did not start" in caplog.text


def test_batch_goes_without_processes_whose_sources_are_others(
    environment: Environment,
    own_processes: CompilationProcesses,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grow = own_processes.grow
    changed = hashlib.sha256(b"before the change").hexdigest()
    monkeypatch.setattr(
        own_processes, "grow", lambda size, warm_up, compiler, build: grow(size, warm_up, compiler, changed)
    )
    bench = bench_of(environment, None)
    for number in range(6):
        bench.enqueue(f"slow{number}", definition(f"slow{number}", number + 5))
    with caplog.at_level(logging.WARNING):
        assert bench.loader.compile_queued() == 6
        wait_until(lambda: own_processes.num_workers == 0)
    assert "the compile worker has other sources, which were changed since this process started" in caplog.text
    assert {record.worker.partition("/")[0] for record in bench.records.kernels} == {str(os.getpid())}


def test_batch_goes_on_alone_when_the_processes_are_shut_down_under_it(
    environment: Environment, own_processes: CompilationProcesses
) -> None:
    own_processes.grow(1)
    assert own_processes.wait_until_ready(1, 60)
    bench = bench_of(environment, None)
    for number in range(6):
        bench.enqueue(f"slow{number}", definition(f"slow{number}", number + 5))
    threading.Timer(0.2, lambda: own_processes.shutdown(wait=False, cancel_futures=True)).start()
    assert bench.loader.compile_queued() == 6
