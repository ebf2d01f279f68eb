"""Several processes on one store: at once, forked, killed, and with no space left."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from quernel.identity import KernelCacheKey
from quernel.store import ArtifactStore, Environment, StoredArtifact, StoreNames

NAMES = StoreNames("cpu", 1, "fp")

PRELUDE = """
import hashlib, logging, os, sys, threading
from quernel.errors import StoreError
from quernel.identity import IrKey, KernelCacheKey
from quernel.store import ArtifactStore, Environment, StoredArtifact, StoreNames, compilation_store, store_compiled

def key(text):
    return KernelCacheKey(hashlib.sha256(text.encode()).hexdigest())

def artifact(text, num_bytes):
    return StoredArtifact(text.encode(), hashlib.shake_256(text.encode()).digest(num_bytes))

env = Environment(sys.argv[1])
store = ArtifactStore(env, StoreNames("cpu", 1, "fp"))
"""


def key(text: str) -> KernelCacheKey:
    return KernelCacheKey(hashlib.sha256(text.encode()).hexdigest())


def artifact(text: str, num_bytes: int) -> StoredArtifact:
    return StoredArtifact(text.encode(), hashlib.shake_256(text.encode()).digest(num_bytes))


def script(text: str) -> str:
    return PRELUDE + textwrap.dedent(text)


def start(text: str, *arguments: object, **settings: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script(text), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


WRITE_MANY = """
from time import monotonic, sleep
who, done = sys.argv[2], 0
for number in range(40):
    text = f"{who if number % 2 else 'both'} {number}"
    large = 2**20 + 5 if number % 10 == 0 else 5000
    until = monotonic() + 30
    while not store_compiled(store, key(text), artifact(text, large), kernel_name="k", parts={"code": text}):
        assert monotonic() < until, "never got the lock"
        sleep(0.01)
    assert store.get(key(text)) == artifact(text, large)
store.close()
print("done")
"""


def test_two_processes_that_write_at_once_both_keep_everything(tmp_path: Path) -> None:
    writers = [start(WRITE_MANY, tmp_path / "env", who) for who in ("a", "b")]
    assert [finished(writer) for writer in writers] == ["done\n", "done\n"]
    store = ArtifactStore(Environment(tmp_path / "env"), NAMES)
    for number in range(40):
        for who in ("a", "b") if number % 2 else ("both",):
            text = f"{who} {number}"
            assert store.get(key(text)) == artifact(text, 2**20 + 5 if number % 10 == 0 else 5000)
    report = store.verify()
    assert report.problems == ()
    assert (report.num_stray_files, report.num_unnamed_payloads) == (0, 0)
    assert len(store.last_parts("k")) == 8
    store.close()


def test_eight_processes_that_open_a_new_store_at_once_all_succeed(tmp_path: Path) -> None:
    text = """
    store.put(key(sys.argv[2]), artifact(sys.argv[2], 100))
    print(store.get(key(sys.argv[2])) == artifact(sys.argv[2], 100))
    """
    processes = [start(text, tmp_path / "env", number) for number in range(8)]
    assert [finished(process) for process in processes] == ["True\n"] * 8
    store = ArtifactStore(Environment(tmp_path / "env"), NAMES)
    assert store.info().num_kernels == 8
    store.close()


def test_collecting_beside_a_writer_loses_nothing_that_is_named(tmp_path: Path) -> None:
    text = """
    store.local.size_limit_bytes = 2_000_000
    for number in range(60):
        name = f"{sys.argv[2]} {number % 30}"
        store_compiled(store, key(name), artifact(f"shared {number % 7}", 120_000))
        found = store.get(key(name))
        assert found is None or found == artifact(f"shared {number % 7}", 120_000)
    store.close()
    """
    for process in [start(text, tmp_path / "env", who) for who in "ab"]:
        finished(process)
    store = ArtifactStore(Environment(tmp_path / "env"), NAMES)
    assert store.verify().problems == ()
    assert store.local.size_bytes() <= 2_200_000
    store.close()


# Fork

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
def test_forked_child_reads_and_writes_with_handles_of_its_own(tmp_path: Path) -> None:
    out = finished(
        start(
            """
            large = artifact("large", 2**20 + 1)
            store.put(key("a"), artifact("a", 100))
            worker = threading.Thread(target=lambda: store.put(key("large"), large))
            worker.start(); worker.join()
            inherited = store.local.reader._connection, store.local._writer._cache
            for number in range(3):
                child = os.fork()
                if child == 0:
                    good = store.get(key("a")) == artifact("a", 100) and store.get(key("large")) == large
                    store.put(key(f"child {number}"), artifact("child", 2**20 + number))
                    good &= store.get(key(f"child {number}")) == artifact("child", 2**20 + number)
                    good &= store.local.reader._connection is not inherited[0]
                    good &= store.local._writer._cache is not inherited[1]
                    good &= inherited[0].execute("SELECT 1").fetchone() == (1,)  # open, not closed
                    if number == 0:
                        os._exit(0 if good else 1)
                    store.close()
                    sys.exit(0 if good else 1)
                assert os.waitpid(child, 0)[1] == 0
                assert (store.local.reader._connection, store.local._writer._cache) == inherited
                assert store.get(key(f"child {number}")) is not None
                store.put(key(f"parent {number}"), artifact("parent", 100))
            report = store.verify()
            assert report.is_whole and not report.num_stray_files, report
            store.close()
            print("done")
            """,
            tmp_path / "env",
        )
    )
    assert out == "done\n"


@needs_fork
def test_forked_child_is_not_blocked_by_a_lock_that_another_thread_held(tmp_path: Path) -> None:
    out = finished(
        start(
            """
            store.put(key("a"), artifact("a", 100))
            inside, leave = threading.Event(), threading.Event()

            def hold():
                with store.local._writer._lock, store.local.reader._lock, env._lock:
                    inside.set()
                    leave.wait()

            holder = threading.Thread(target=hold)
            holder.start()
            inside.wait()
            child = os.fork()
            if child == 0:
                store.put(key("b"), artifact("b", 100))
                good = store.get(key("a")) == artifact("a", 100)
                os._exit(0 if good and compilation_store("cuda", "fp", environment=env) is not None else 1)
            assert os.waitpid(child, 0)[1] == 0
            leave.set()
            holder.join()
            assert store.get(key("b")) == artifact("b", 100)
            print("done")
            """,
            tmp_path / "env",
        )
    )
    assert out == "done\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux, to count open files")
def test_forked_child_closes_no_connection_of_any_thread_of_its_parent(tmp_path: Path) -> None:
    out = finished(
        start(
            """
            def num_open():
                links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
                return sum(os.path.exists(link) and "cache.db" in os.readlink(link) for link in links)

            stored, leave = threading.Event(), threading.Event()

            def write_and_stay():
                store.put(key("thread"), artifact("thread", 100))
                stored.set()
                leave.wait()

            writer = threading.Thread(target=write_and_stay)
            writer.start()
            stored.wait()
            store.put(key("main"), artifact("main", 100))
            before = num_open()
            assert before >= 3
            child = os.fork()
            if child == 0:
                same = num_open() == before
                store.close()
                os._exit(0 if same and num_open() == before else 1)
            assert os.waitpid(child, 0)[1] == 0
            leave.set()
            writer.join()
            print("done")
            """,
            tmp_path / "env",
        )
    )
    assert out == "done\n"


# Death

ENDLESS = """
print("ready", flush=True)
number = 0
while True:
    text = f"{sys.argv[2]} {number}"
    number += 1
    size = 2**20 + 7 if number % 3 == 0 else 20_000
    store_compiled(store, key(text), artifact(text, size), ir_key=IrKey(key(text).digest), kernel_name="k",
                   parts={"code": text})
    if number % 5 == 0:
        store.drop(key(text))
"""


def test_store_is_whole_after_writers_were_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(20260)
    stored = 0
    for round_number in range(15):
        writer = start(ENDLESS, tmp_path / "env", round_number)
        assert writer.stdout is not None
        # The first rounds end while the store is being opened, the others while it is written to.
        if round_number >= 4:
            writer.stdout.readline()
            time.sleep(chance.uniform(0.0, 0.25))
        else:
            time.sleep(chance.uniform(0.1, 0.4))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        store = ArtifactStore(Environment(tmp_path / "env"), NAMES)
        report = store.verify()
        assert report.problems == (), round_number
        for number in range(200):
            text = f"{round_number} {number}"
            found = store.get(key(text))
            size = 2**20 + 7 if (number + 1) % 3 == 0 else 20_000
            assert found is None or found == artifact(text, size)
            stored += found is not None
        store.put(key(f"after {round_number}"), artifact("after", 100))
        assert store.get(key(f"after {round_number}")) == artifact("after", 100)
        store.close()
    assert stored > 20


# No space

FILL = """
logging.basicConfig(format="%(levelname)s %(message)s")
if len(sys.argv) > 2:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
def look_up(text):
    try:
        return store.get(key(text))
    except StoreError as error:  # as the loader does
        env.say_unusable(error)
        return None

taken = [store_compiled(store, key(str(n)), artifact(str(n), 60_000 if n % 2 else 2**20 + n)) for n in range(12)]
kept = [look_up(str(n)) for n in range(12)]
for n, (was_taken, found) in enumerate(zip(taken, kept)):
    assert found == (artifact(str(n), 60_000 if n % 2 else 2**20 + n) if was_taken else None), n
print(sum(taken), "of", len(taken))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on file sizes")
@pytest.mark.parametrize("limit", [10_000, 300_000, 2**20 + 5])
def test_launch_goes_on_with_one_warning_when_files_cannot_grow(tmp_path: Path, limit: int) -> None:
    process = start(FILL, tmp_path / "env", limit)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert int(out.split()[0]) < 12
    assert err.count("WARNING") == 1
    assert "Traceback" not in err
    store = ArtifactStore(Environment(tmp_path / "env"), NAMES)
    report = store.verify()
    assert report.problems == ()
    assert report.num_stray_files == 0
    store.put(key("after"), artifact("after", 2**20 + 1))
    assert store.get(key("after")) == artifact("after", 2**20 + 1)
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 3 MiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("needs mount")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_launch_goes_on_with_one_warning_when_the_disk_is_full(small_disk: Path) -> None:
    process = start(FILL, small_disk / "env")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert 0 < int(out.split()[0]) < 12
    assert err.count("WARNING") == 1
    assert "Traceback" not in err
    store = ArtifactStore(Environment(small_disk / "env"), NAMES)
    report = store.verify()
    assert report.problems == ()
    assert report.num_stray_files == 0
    store.clear()
    store.put(key("after"), artifact("after", 100_000))
    assert store.get(key("after")) == artifact("after", 100_000)
    store.close()


def fill_up(path: Path) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(handle, b"x" * 4096)
    except OSError:
        os.close(handle)


def test_store_that_finds_the_disk_full_from_the_start_says_so_once(small_disk: Path) -> None:
    filler = small_disk / "filler"
    fill_up(filler)
    process = start(FILL, small_disk / "env")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out == "0 of 12\n"
    assert err.count("WARNING") == 1
    filler.unlink()
    finished(start('store.put(key("a"), artifact("a", 100)); assert store.get(key("a"))', small_disk / "env"))
