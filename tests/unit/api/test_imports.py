"""What importing and a warm start may load: the cost of starting a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import quernel
import quernel_cpu

NEVER = (
    "attr",
    "attrs",
    "quernel.ir",
    "quernel.lang",
    "quernel.cli",
    "click",
    "rich",
    "filelock",
    "diskcache",
    "pluggy",
    "cuda",
    "pyopencl",
    "importlib.metadata",
    "concurrent.futures",
    "multiprocessing",
    "platformdirs",
    "numpy.ma",
    "fractions",
)

PRELUDE = """
import sys
import numpy
before = set(sys.modules)
import quernel as qn
def loaded():
    return sorted(set(sys.modules) - before)
"""

KERNEL = """
import numpy as np
import quernel as qn
@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]
@qn.kernel
def untyped(a, x):
    i = qn.global_id()
    x[i] = a
"""


def run(code: str, **environment: str) -> str:
    variables = {"PATH": "", "PYTHONPATH": os.environ["PYTHONPATH"], **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def offending(names: list[str], forbidden: tuple[str, ...]) -> list[str]:
    return [name for name in names if any(name == found or name.startswith(found + ".") for found in forbidden)]


def test_processes_of_tests_run_the_sources_under_test() -> None:
    files = run("import quernel, quernel_cpu\nprint(quernel.__file__)\nprint(quernel_cpu.__file__)").splitlines()
    assert files == [quernel.__file__, quernel_cpu.__file__]


def test_import_of_the_package_loads_what_watches_forks_and_nothing_else() -> None:
    names = run(PRELUDE + "print(*loaded())").split()
    assert names == ["__future__", "quernel", "quernel.forks", "threading"]


def test_definition_of_a_kernel_loads_no_device_and_no_compiler() -> None:
    code = PRELUDE + KERNEL + "print(*loaded())"
    names = run(code).split()
    heavy = ("llvmlite", "quernel_cpu", "quernel.store", "quernel.compiler", "quernel.identity", "logging", "hashlib")
    assert offending(names, NEVER + heavy + ("quernel.plugins", "quernel.runtime.devices")) == []
    assert "quernel.dtypes" in names


def test_warm_start_loads_no_frontend_no_ir_and_no_heavy_package(tmp_path: Path) -> None:
    module = tmp_path / "warm_kernels.py"
    module.write_text(KERNEL)
    launch = f"""
sys.path.insert(0, {str(tmp_path)!r})
import numpy as np
from warm_kernels import saxpy
from types import SimpleNamespace
for package in ("quernel", "quernel_cpu"):  # as wheels have it, which read no sources
    sys.modules[package + "._build_id"] = SimpleNamespace(DIGEST="0" * 64)
x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
saxpy.over(8)(2.0, x, y)
assert y.tolist() == (2 * x + 1).tolist()
print(*loaded())
"""
    environment = str(tmp_path / "environment")
    cold = run(PRELUDE + launch, QUERNEL_ENVIRONMENT=environment, HOME=str(tmp_path)).split()
    assert "quernel.lang" in cold
    warm = run(PRELUDE + launch, QUERNEL_ENVIRONMENT=environment, HOME=str(tmp_path)).split()
    rare = ("hashlib", "_hashlib", "logging", "quernel.structs", "quernel.runtime.compounds", "quernel.runtime.reports")
    assert offending(warm, NEVER + rare) == []
    assert "quernel_cpu.device" in warm


@pytest.mark.parametrize("names", ["devices", "backends"])
def test_looking_for_devices_loads_neither_compiler_toolchain_nor_frontend(names: str) -> None:
    found = run(PRELUDE + f"qn.{names}()\nprint(*loaded())").split()
    assert offending(found, ("llvmlite", "quernel.lang", "quernel.ir", "click", "rich", "pluggy", "diskcache")) == []
