"""How a process ends while kernels compile: quickly, quietly, and with what was kept whole."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from tests.integration import races

pytest.importorskip("quernel_cpu", reason="needs the CPU backend")


def finished(code: str, folder: Path) -> tuple[int, str, str]:
    process = races.start(code, races.prepare(folder))
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def test_process_ends_while_kernels_are_warmed(tmp_path: Path) -> None:
    code = f"{races.CHECK}\nfor number in NUMBERS:\n    getattr(raced_kernels, f'k{{number}}').warm()\nprint('over')"
    start_s = time.monotonic()
    assert finished(code, tmp_path) == (0, "over\n", "")
    assert time.monotonic() - start_s < 30
    races.kept_whole(tmp_path)
    assert finished(f"{races.CHECK}\nlaunch_all(1)", tmp_path) == (0, "", "")


def test_launch_and_warm_kernel_while_the_process_ends_work(tmp_path: Path) -> None:
    code = f"""
import atexit
@atexit.register
def late():
    launch(NUMBERS[:2])
    print(raced_kernels.k2.warm().result().id.kernel.name)
{races.CHECK}
raced_kernels.k3.warm().result()
"""
    assert finished(code, tmp_path) == (0, "k2\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_interrupted_batch_can_be_compiled_again_in_the_same_process(tmp_path: Path) -> None:
    code = f"""
{races.CHECK}
import os, signal, threading
pid = os.getpid()
done = []
def interrupt(num_done, num_kernels, name):
    done.append(name)
    if len(done) == 3:
        os.kill(pid, signal.SIGINT)
asked = [getattr(raced_kernels, f"k{{number}}") for number in NUMBERS]
try:
    qn.device("cpu").compile(asked, progress=interrupt)
except KeyboardInterrupt:
    print("interrupted")
counts = qn.device("cpu").loader.counts()
assert counts.building == counts.queued == 0, counts
launch_all(1)
print("done")
"""
    assert finished(code, tmp_path) == (0, "interrupted\ndone\n", "")
    assert races.kept_whole(tmp_path) >= races.NUM_KERNELS
