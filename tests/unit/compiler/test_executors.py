"""The process's own compilation threads, and what happens to work when they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from quernel.compiler.threads import CompilationThreads


def test_threads_run_tasks_and_hand_back_results_and_errors() -> None:
    threads = CompilationThreads(2)
    assert threads.submit(divmod, 7, 2).result(20) == (3, 1)
    with pytest.raises(ZeroDivisionError, match="by zero"):
        threads.submit(divmod, 7, 0).result(20)
    threads.shutdown()


def test_threads_start_only_while_there_is_work_for_them() -> None:
    threads = CompilationThreads(4)
    for number in range(10):
        assert threads.submit(abs, -number).result(20) == number
        while threads._idle._value == 0:
            time.sleep(0.001)
    assert len(threads._threads) == 1
    threads.shutdown()


def test_threads_work_at_once_up_to_their_number() -> None:
    threads = CompilationThreads(3)
    together = threading.Barrier(3, timeout=20)
    futures = [threads.submit(together.wait) for _ in range(6)]
    assert sorted(future.result(20) for future in futures) == [0, 0, 1, 1, 2, 2]
    assert len(threads._threads) == 3
    threads.shutdown()


def test_shutdown_cancels_what_is_queued_and_refuses_more() -> None:
    threads = CompilationThreads(1)
    started, go_on = threading.Event(), threading.Event()

    def hold() -> bool:
        started.set()
        return go_on.wait(20)

    running = threads.submit(hold)
    assert started.wait(20)
    queued = threads.submit(abs, -1)
    threads.shutdown(wait=False, cancel_futures=True)
    assert queued.cancelled()
    go_on.set()
    assert running.result(20) is True
    with pytest.raises(RuntimeError, match="the compilation threads have ended"):
        threads.submit(abs, -1)


def test_shutdown_runs_what_is_queued_unless_told_otherwise() -> None:
    threads = CompilationThreads(1)
    futures = [threads.submit(abs, -number) for number in range(5)]
    threads.shutdown()
    assert [future.result(0) for future in futures] == [0, 1, 2, 3, 4]


def test_shutdown_waits_no_longer_than_it_may() -> None:
    threads = CompilationThreads(1)
    go_on = threading.Event()
    threads.submit(go_on.wait, 60)
    start_s = time.monotonic()
    threads.shutdown(timeout_s=0.05)
    assert time.monotonic() - start_s < 30
    assert threads._threads[0].is_alive()
    go_on.set()


def test_process_ends_although_a_compilation_goes_on() -> None:
    code = """
import threading
from quernel.compiler import own_workers
own_workers._END_TIMEOUT_S = 0.1
started = threading.Event()
own_workers.compilation_threads().submit(lambda: started.set() or threading.Event().wait(300))
started.wait()
print("ended")
"""
    root = Path(__file__).parents[3]
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "ended\n"


@pytest.mark.skipif(os.name == "nt", reason="needs signals of POSIX")
def test_ctrl_c_ends_the_wait_for_compilations_at_the_end_of_a_process() -> None:
    code = """
import os, signal, threading
from quernel.compiler import own_workers
own_workers._END_TIMEOUT_S = 300.0
own_workers.compilation_processes()
started = threading.Event()
own_workers.compilation_threads().submit(lambda: started.set() or threading.Event().wait(300))
started.wait()
def interrupt():
    while not own_workers._is_ending:
        threading.Event().wait(0.01)
    threading.Event().wait(0.2)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
print("ended")
"""
    root = Path(__file__).parents[3]
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True, timeout=60
    )
    assert (shown.stdout, shown.stderr) == ("ended\n", "")


def test_end_of_a_process_that_has_threads_and_processes_waits_once() -> None:
    code = """
from quernel.compiler import own_workers
own_workers.num_cores = lambda: 2
assert own_workers.compilation_processes() is not None
own_workers.compilation_threads().shutdown = lambda **given: print("shut down")
"""
    root = Path(__file__).parents[3]
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True, timeout=60
    )
    assert shown.stdout == "shut down\n"
