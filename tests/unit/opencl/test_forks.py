"""After a fork: the driver's threads are the parent's alone, so the child is refused instead of waiting for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs an operating system that forks")

PROGRAM = """
import json, os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import numpy as np
import quernel as qn

@qn.kernel
def saxpy(a: qn.f32, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

@qn.kernel
def double(y: qn.Array[qn.f32]):
    y[qn.global_id()] *= 2

def on_cpu():
    y = np.ones(8, np.float32)
    saxpy.over(8, device="cpu")(1.0, np.ones(8, np.float32), y)
    assert y.tolist() == [2] * 8

info = qn.devices("opencl")[0]
attempts = {
    "devices": lambda: qn.devices("opencl"),
    "look-up": lambda: qn.device("opencl"),
    "info": lambda: qn.device(info),
    "string": lambda: qn.device("opencl:0"),
    "use": lambda: qn.use("opencl").__enter__(),
    "new launch": lambda: double.over(8, device="opencl"),
}
if sys.argv[1] == "launched":
    device = qn.device("opencl")
    array = device.zeros(8, qn.f32)
    kept = saxpy.over(8)
    for _ in range(4):
        kept(1.0, array, array)
    bound = kept.bind(1.0, array, array)
    with device.graph() as graph:
        kept(1.0, array, array)
    stream = device.stream()
    event = stream.record()
    bound()
    graph()
    device.synchronize()
    attempts |= {
        "device": lambda: qn.device(device),
        "kept": lambda: kept(1.0, array, array),
        "bound": bound,
        "bound again": lambda: kept.bind(1.0, array, array),
        "update": lambda: bound.update(a=2.0),
        "graph": graph,
        "stream": stream.synchronize,
        "event": event.synchronize,
        "read": array.numpy,
        "write": lambda: array.fill(1.0),
        "copy": array.copy,
        "move": lambda: array.to("cpu"),
        "item": array[0].item,
        "allocate": lambda: device.zeros(8),
        "wait": device.synchronize,
        "compile": lambda: device.compile([double]),
        "compiling": lambda: device.compiling().__enter__(),
    }
child = os.fork()
if not child:
    signal.alarm(60)
    for name, attempt in attempts.items():
        try:
            attempt()
        except qn.errors.DeviceError as error:
            print(json.dumps([name, "before this process was forked" in str(error), error.fix]), flush=True)
        except BaseException as error:
            print(json.dumps([name, repr(error), None]), flush=True)
        else:
            print(json.dumps([name, "went on", None]), flush=True)
    on_cpu()
    assert [info.backend for info in qn.devices() if info.backend in ("cpu", "opencl")] == ["cpu"]
    sys.exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if sys.argv[1] == "launched":
    kept(1.0, array, array)
    array.numpy()
print(json.dumps([code, len(attempts), None]))
"""


@pytest.mark.parametrize("parent", ["asked", "launched"])
def test_a_forked_child_is_refused_whatever_it_asks_of_the_driver_and_cpu_goes_on(parent: str, tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(PROGRAM)
    ran = subprocess.run([sys.executable, program, parent], capture_output=True, text=True, timeout=120, check=False)
    *refused, (code, num_attempts, _) = [json.loads(line) for line in ran.stdout.splitlines()]
    assert code == 0, ran.stdout + ran.stderr
    assert len(refused) == num_attempts
    for name, is_told, fix in refused:
        assert is_told is True, (name, is_told)
        assert fix.startswith("start processes with 'spawn'"), name
        assert "create" not in fix
