"""What is imported while the driver starts."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from quernel_cuda import ahead


def test_modules_of_a_launch_are_imported_by_a_thread_meanwhile() -> None:
    program = """
import sys, time
from quernel_cuda import ahead
with ahead.importing():
    for _ in range(600):
        if all(name in sys.modules for name in ahead._MODULES):
            break
        time.sleep(0.05)
from quernel_cuda.device import CudaDevice
from quernel.compiler.loader import KernelLoader
assert "cuda.bindings" not in sys.modules
print(sorted(set(ahead._MODULES) - set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "[]\n", ran.stderr


def test_imports_end_with_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go = threading.Event(), threading.Event()
    asked: list[str] = []

    def slow(name: str) -> None:
        asked.append(name)
        begun.set()
        may_go.wait(10)

    monkeypatch.setattr(ahead, "_MODULES", ("one", "two"))
    monkeypatch.setattr(ahead, "import_module", slow)
    with ahead.importing():
        begun.wait(10)
        threading.Timer(0.2, may_go.set).start()
    assert asked == ["one"]
    assert not [thread for thread in threading.enumerate() if thread.name == "quernel-cuda-imports"]


def test_a_module_that_fails_is_left_to_whoever_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_MODULES", ("no_such_module_of_anyone", "quernel_cuda.never"))
    with ahead.importing():
        pass
    assert "quernel_cuda.never" not in sys.modules
