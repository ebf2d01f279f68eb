"""What a forked child finds, whatever the other threads of its parent were in the midst of."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from quernel import forks
from quernel.compiler.inflight import Job, JobState
from quernel.compiler.tables import LoaderTables
from quernel.errors import DeviceError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs an operating system that forks")

SOURCES = [Path(__file__).parents[2] / "core/src", *(Path(__file__).parents[2] / "backends").glob("*/src")]

MAKERS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
NEED_NONE = {
    "quernel/compiler/threads.py": "a child drops the pools, and makes its own",
    "quernel/compiler/worker.py": "a worker process, which runs no code that forks",
    "quernel_cuda/staging.py": "belongs to a device, which the child is refused",
    "quernel_opencl/memory.py": "belongs to a device, which the child is refused",
    "quernel_opencl/device.py": "belongs to a device, which the child is refused",
}


def makes_locks(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in {("threading", maker) for maker in MAKERS}
        for node in ast.walk(tree)
    )


def renews(tree: ast.Module) -> bool:
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return bool(methods & {"renew_after_fork", "abandon"} or called & {"in_child", "around", "renewed"})


def test_every_module_that_makes_a_lock_says_what_becomes_of_it_in_a_forked_child() -> None:
    found = {}
    for source in SOURCES:
        for path in source.rglob("*.py"):
            tree = ast.parse(path.read_text())
            if makes_locks(tree) and "testing" not in path.parts:
                found[path.relative_to(source).as_posix()] = renews(tree) or path.name == "forks.py"
    assert len(found) > 25
    assert sorted(name for name, is_said in found.items() if not is_said) == sorted(NEED_NONE)


def test_only_one_module_registers_with_python() -> None:
    named = [path.name for source in SOURCES for path in source.rglob("*.py") if "register_at_fork" in path.read_text()]
    assert named == ["forks.py"]


def in_child(work: Callable[[], None]) -> None:
    """Runs `work` in a forked child; fails here if it fails there, or takes long."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(30)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class _Kept:
    def __init__(self) -> None:
        self.num_renewed = 0
        forks.renewed(self)

    def renew_after_fork(self) -> None:
        self.num_renewed += 1


def test_objects_are_renewed_in_the_child_alone_and_whatever_others_raise() -> None:
    class Broken:
        def renew_after_fork(self) -> None:
            raise RuntimeError("this is shown, and the rest goes on")

    broken, kept = forks.renewed(Broken()), [_Kept() for _ in range(20)]

    def work() -> None:
        assert all(found.num_renewed == 1 for found in kept)

    in_child(work)
    assert all(found.num_renewed == 0 for found in kept)
    del broken


def test_one_fork_at_a_time_and_what_rests_goes_on_after_each() -> None:
    seen: list[str] = []
    inside = threading.Lock()

    def rest() -> None:
        assert inside.acquire(timeout=20)
        time.sleep(0.01)
        seen.append("rest")

    def go_on() -> None:
        seen.append("go on")
        inside.release()

    found = forks._Rest(rest, go_on, go_on)
    forks.around(rest, go_on)
    forks.around(rest, go_on)
    try:
        threads = [threading.Thread(target=in_child, args=(lambda: None,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == ["rest", "go on"] * 4

        def work() -> None:
            assert not inside.locked()
            assert seen == ["rest", "go on"] * 5

        in_child(work)
    finally:
        forks._around.remove(found)


def test_what_other_threads_name_during_a_fork_rests_before_it() -> None:
    seen: list[str] = []
    late = forks._Rest(lambda: seen.append("late rests"), lambda: seen.append("late goes on"), lambda: None)

    def rest() -> None:
        if late not in forks._around:
            forks._around.append(late)

    early = forks._Rest(rest, lambda: None, lambda: None)
    forks.around(*early)
    try:
        in_child(lambda: None)
        assert seen == ["late rests", "late goes on"]
    finally:
        forks._around.remove(early)
        forks._around.remove(late)


@pytest.fixture
def passage() -> forks.Passage:
    return forks.Passage()


def test_a_fork_waits_until_nobody_is_in_a_passage_and_the_child_may_enter(passage: forks.Passage) -> None:
    entered, num_left = threading.Event(), []

    def go_through() -> None:
        for _ in range(5):
            with passage:
                entered.set()
                time.sleep(0.05)
                num_left.append(1)

    threads = [threading.Thread(target=go_through) for _ in range(3)]
    for thread in threads:
        thread.start()
    entered.wait(20)

    def work() -> None:
        assert not passage._inside
        with passage:
            pass

    for _ in range(4):
        in_child(work)
    for thread in threads:
        thread.join()
    assert len(num_left) == 15
    assert not passage._inside


def test_a_thread_within_a_passage_may_fork_and_enter_again_as_signal_handlers_do(passage: forks.Passage) -> None:
    ends: list[int] = []

    def fork_and_enter(*_: object) -> None:
        in_child(enter)
        enter()
        ends.append(len(passage._inside))

    def enter() -> None:
        with passage:
            pass

    known = signal.signal(signal.SIGALRM, fork_and_enter)
    try:
        with passage:
            signal.raise_signal(signal.SIGALRM)
            in_child(enter)
    finally:
        signal.signal(signal.SIGALRM, known)
    assert ends == [1]
    assert not passage._inside


def test_a_hook_around_a_fork_may_enter_what_the_fork_has_closed(passage: forks.Passage) -> None:
    seen: list[bool] = []

    def rest() -> None:
        with passage:
            seen.append(True)

    found = forks._Rest(rest, rest, rest)
    forks._around.insert(0, found)  # rests after the passage is closed
    try:
        in_child(lambda: None)
    finally:
        forks._around.remove(found)
    assert seen == [True, True]


def test_an_interrupt_while_a_fork_waits_leaves_the_passage_open(
    passage: forks.Passage, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: shown.append(raised.exc_value))
    entered, leave, over = threading.Event(), threading.Event(), threading.Event()

    def go_through() -> None:
        with passage:
            entered.set()
            leave.wait(30)
        with passage:  # for ever closed where the interrupted fork has forgotten it
            over.set()

    def interrupt(*_: object) -> None:
        leave.set()
        raise KeyboardInterrupt

    thread = threading.Thread(target=go_through, daemon=True)
    thread.start()
    assert entered.wait(20)
    known = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        in_child(lambda: None)
    finally:
        signal.signal(signal.SIGALRM, known)
    assert over.wait(20)
    (error,) = shown
    assert isinstance(error, BaseExceptionGroup)
    assert isinstance(error.exceptions[0], KeyboardInterrupt)


FORK_WITHIN_A_FORK = """
import concurrent.futures.thread  # Its hook takes a lock twice, and for ever, where it comes before those of this test.
import os
import threading

from quernel import forks

seen, ends = [], []

def fork():
    child = os.fork()
    if not child:
        os._exit(0)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def fork_within():
    if len(forks._forks.resting) == 1:
        child = os.fork()
        if not child:
            os._exit(0 if seen == ["rest"] else 1)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        seen.append("forked within")

inner = forks._Rest(fork_within, lambda: None, lambda: None)
outer = forks._Rest(lambda: seen.append("rest"), lambda: seen.append("go on"), lambda: None)
forks._around.extend((inner, outer))
try:
    fork()
finally:
    forks._around.remove(inner)
    forks._around.remove(outer)
assert (seen, ends) == (["rest", "forked within", "go on"], [0, 0]), (seen, ends)
fork()
other = threading.Thread(target=fork, daemon=True)  # one fork at a time: the first has ended
other.start()
other.join(20)
assert not other.is_alive()
assert ends == [0] * 4, ends
"""


def test_a_fork_within_a_fork_leaves_at_rest_what_rests() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK_WITHIN_A_FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_a_driver_counts_as_started_from_the_beginning_of_its_start() -> None:
    with forks.starting_driver("starting-here"):

        def work() -> None:
            with pytest.raises(DeviceError, match="starting-here was started before this process was forked"):
                forks.check_driver("starting-here")

        in_child(work)
    in_child(work)


def test_a_start_that_fails_takes_nothing_from_another_thread_s_start() -> None:
    first, second = forks.starting_driver("starting-twice"), forks.starting_driver("starting-twice")
    first.__enter__()
    with second:
        pass
    assert not first.__exit__(RuntimeError, RuntimeError(), None)

    def work() -> None:
        with pytest.raises(DeviceError, match="starting-twice was started before"):
            forks.check_driver("starting-twice")

    in_child(work)


def test_a_driver_that_did_not_start_is_no_obstacle_in_the_child() -> None:
    with pytest.raises(RuntimeError), forks.starting_driver("never-started"):
        raise RuntimeError
    in_child(lambda: forks.check_driver("never-started"))


IMPORTS = """
import os, signal, sys, threading, time
from quernel import forks
sys.path.insert(0, sys.argv[1])
entered = threading.Event()
sys.entered = entered
threads = [threading.Thread(target=__import__, args=("slow.outer",)) for _ in range(3)]
for thread in threads: thread.start()
entered.wait(20)
child = os.fork()
if not child:
    signal.alarm(20)
    import slow.outer
    import slow.done
    assert slow.done is slow.outer.done is slow.parts["done"]
    assert slow.outer.whole == 1
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for thread in threads: thread.join()
assert sys.modules["slow.outer"].whole == 1
"""


def test_a_module_that_another_thread_is_importing_is_imported_anew_in_the_child(tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow/__init__.py").write_text(
        "import sys, time\nfrom slow import done\nparts = {'done': done}\nsys.entered.set()\ntime.sleep(0.5)\n"
    )
    (tmp_path / "slow/done.py").write_text("")
    (tmp_path / "slow/outer.py").write_text("from slow import done\nwhole = 1\n")
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "0\n", ran.stderr


FORKS_AMID_THE_FIRST_USE = """
import os, signal, sys, threading
import quernel as qn

from importlib.machinery import SourceFileLoader

def run(self, module):
    if threading.current_thread() is using:
        imported.append(module)
        if len(imported) == int(sys.argv[1]):
            importing.set()
            threading.Event().wait()
    execute(self, module)

imported, importing = [], threading.Event()
execute, SourceFileLoader.exec_module = SourceFileLoader.exec_module, run
using = threading.Thread(target=lambda: qn.device("reference"), daemon=True)
using.start()
importing.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    os._exit(0 if qn.device("reference").zeros(3, qn.f32).numpy().sum() == 0 else 1)
os._exit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_child_forked_while_another_thread_uses_the_package_for_the_first_time_imports_anew(number: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS_AMID_THE_FIRST_USE, str(number)], capture_output=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()


def test_a_fork_waits_for_the_import_of_what_cannot_be_loaded_twice() -> None:
    program = """
    import os, signal, threading, time
    from quernel import forks
    threads = [threading.Thread(target=__import__, args=("numpy",)) for _ in range(2)]
    for thread in threads: thread.start()
    while "numpy" not in forks._foreign_imports(): time.sleep(0.001)
    child = os.fork()
    if not child:
        signal.alarm(20)
        import numpy
        assert numpy.arange(3).sum() == 3
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "0\n", ran.stderr


def job() -> Job:
    return Job(None, None, None)  # type: ignore[arg-type]  # neither is looked at


def test_jobs_that_other_threads_drove_are_given_up_in_the_child_at_any_point_of_their_lives() -> None:
    tables = LoaderTables()
    queued, taken, active, loaded = (job() for _ in range(4))
    taken.state = active.state = JobState.ACTIVE
    loaded.state = JobState.LOADED
    loaded.done.set()
    # `taken` was to be taken off the queue next, `active` is not in a table any more: it was to be said to be done.
    tables._queued = {(None, 1): queued, (None, 2): taken}

    def work() -> None:
        for done in (taken, active, loaded):
            assert done.done.wait(0)
        assert (taken.state, active.state) == (JobState.ABANDONED, JobState.ABANDONED)
        assert not queued.is_settled
        assert list(tables._queued.values()) == [queued]

    held = [found.done._cond for found in (queued, taken, active, loaded)]  # type: ignore[attr-defined]
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in (*held, tables._lock):
            lock.acquire()
        entered.set()
        leave.wait(30)
        for lock in (*held, tables._lock):
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    try:
        in_child(work)
    finally:
        leave.set()
        thread.join()


# --- first launches ---------------------------------------------------------------------------------------------------

STORM = """
import itertools, linecache, os, random, signal, sys, threading, time, traceback
import numpy as np
import quernel as qn

name, seed, delay_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
TEXT = '''
def make(qn):
    @qn.kernel
    def scaled{number}(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
        i = qn.global_id()
        y[i] = x[i] * {number} + y[i]
    return scaled{number}
'''
numbers = itertools.count(1)

def made():
    number = next(numbers)
    text, file = TEXT.format(number=number), f"<made {number}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {}
    exec(compile(text, file, "exec"), space)
    return number, space["make"](qn)

def launched(device, length):
    number, kernel = made()
    x, y = np.ones(length, np.float32), np.zeros(length, np.float32)
    if device in ("cpu", "reference"):
        kernel.over(length, device=device)(x, y)
    else:
        opened = qn.device(device)
        given, taken = opened.array(x), opened.array(y)
        kernel.over(length)(given, taken)
        y = taken.numpy()
    assert (y == number).all(), y

over, wrong = threading.Event(), []

def go_on():
    try:
        while not over.is_set():
            launched(name, random.choice((64, 3000, 1 << 20 if name == "cpu" else 64)))
    except BaseException:
        wrong.append(traceback.format_exc())

threads = [threading.Thread(target=go_on) for _ in range(3)]
for thread in threads: thread.start()
time.sleep(delay_s)
draw, ends = random.Random(seed), []
for _ in range(4):
    time.sleep(draw.random() * 0.05)
    child = os.fork()
    if not child:
        signal.alarm(60)
        status = 1
        try:
            for device in dict.fromkeys((name, "cpu")):
                try:
                    launched(device, 1000)
                    launched(device, 1 << 20 if device == "cpu" else 64)
                except qn.errors.DeviceError as error:
                    if device in ("cpu", "reference") or "before this process was forked" not in str(error):
                        raise
            status = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for thread in threads: thread.join()
print(ends, *wrong)
"""


@pytest.mark.parametrize("delay_s", [0.1, 0.5])
@pytest.mark.parametrize("name", ["cpu", "reference", "opencl"])
def test_a_child_forked_during_first_launches_makes_its_own(name: str, delay_s: float, tmp_path: Path) -> None:
    if name != "reference" and find_spec(f"quernel_{name}") is None:
        pytest.skip(f"needs quernel-{name}")
    (tmp_path / "storm.py").write_text(STORM)
    ran = subprocess.run(
        [sys.executable, tmp_path / "storm.py", name, "7", str(delay_s)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "QUERNEL_ENVIRONMENT": str(tmp_path / "environment")},
    )
    assert ran.stdout == "[0, 0, 0, 0]\n", ran.stdout + ran.stderr


QUICK = """
import os, signal
import numpy as np
import quernel as qn
from quernel_cpu.workers import make_native_workers

@qn.kernel
def axpy(a: float, x: qn.Array1[qn.f32], y: qn.Array1[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

x, y = np.ones(100_000, np.float32), np.zeros(100_000, np.float32)
launcher = axpy.over(len(x), device="cpu")
bound = launcher.bind(1.0, x, y)
for _ in range(200): launcher(1.0, x, y)
workers = make_native_workers()
for _ in range(1000): launcher(1.0, x, y), bound()
ends = []
for number in range(16):
    for _ in range(number): launcher(1.0, x, y), bound()
    if number % 2 and workers is not None:  # A worker that has just woken counts as inside for a moment.
        workers._memory[128:132].view(np.int32)[0] += 1
    child = os.fork()
    if not child:
        signal.alarm(20)
        junk = [np.full(1000, 255, np.uint8) for _ in range(1000)]
        y[:] = 0
        for _ in range(100): launcher(1.0, x, y), bound()
        os._exit(0 if y.min() == y.max() == 200 else 1)
    if number % 2 and workers is not None:
        workers._memory[128:132].view(np.int32)[0] -= 1
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ends)
"""


def test_launches_prepared_for_workers_of_the_parent_go_on_in_the_child(tmp_path: Path) -> None:
    if find_spec("quernel_cpu") is None:
        pytest.skip("needs quernel-cpu")
    (tmp_path / "quick.py").write_text(QUICK)
    ran = subprocess.run(
        [sys.executable, tmp_path / "quick.py"], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stdout == f"{[0] * 16}\n", ran.stdout + ran.stderr
