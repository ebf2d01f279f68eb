"""The end of a device: once, whatever was going on, with a name for what is used after it, and open again after."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quernel as qn
from quernel.errors import LaunchError
from quernel.testing.processes import run_program, said_by
from quernel.testing.watching import opened_again


@qn.kernel
def adds(x: qn.Array[qn.i32], by: qn.i32):
    i = qn.global_id()
    x[i] += by


def test_a_device_closes_once_and_says_so_to_whoever_uses_it(quernel_device: Any) -> None:
    with opened_again(quernel_device) as device:
        x = device.zeros(5, qn.i32)
        adds.over(5, device=device)(x, 3)
        assert x.numpy().tolist() == [3] * 5
        stream = device.stream()
    device.close()
    uses = {
        "empty": lambda: device.empty(5, qn.i32),
        "launch": lambda: adds.over(5, device=device)(x, 3),
        "stream": device.stream,
        "graph": device.graph,
        "synchronize": device.synchronize,
        "numpy": x.numpy,
        "fill": lambda: x.fill(1),
        "its stream": stream.synchronize,
    }
    for name, use in uses.items():
        with pytest.raises(LaunchError, match="closed") as caught:
            use()
        assert caught.value.fix, name
    stream.close()


def test_what_is_left_of_a_closed_device_goes_quietly(quernel_device: Any) -> None:
    with opened_again(quernel_device) as device:
        arrays = [device.zeros(100, qn.i32) for _ in range(4)]
        streams = [device.stream() for _ in range(2)]
        bound = adds.over(100, device=device).bind(arrays[0], 1)
        bound()
        with device.graph() as graph:
            bound()
    assert "closed" in repr(arrays[0])
    with pytest.raises(LaunchError, match="closed"):
        bound()
    with pytest.raises(LaunchError, match="closed"):
        graph()
    del arrays, streams, bound, graph


def test_closing_one_opened_device_leaves_another_as_it_is(quernel_device: Any) -> None:
    x = quernel_device.zeros(50, qn.i32)
    with opened_again(quernel_device) as device:
        adds.over(50, device=device)(device.zeros(50, qn.i32), 1)
    adds.over(50, device=quernel_device)(x, 2)
    assert x.numpy().tolist() == [2] * 50
    for number in range(5):
        with opened_again(quernel_device) as device:
            y = device.full(50, number, qn.i32)
            adds.over(50, device=device)(y, 1)
            assert y.numpy().tolist() == [number + 1] * 50


def test_work_that_was_given_is_done_before_the_end(quernel_device: Any) -> None:
    host = np.zeros(50, np.int32)
    with opened_again(quernel_device) as device:
        x = device.zeros(50, qn.i32)
        for _ in range(20):
            adds.over(50, device=device)(x, 1)
        x.copy_to(host)
    assert host.tolist() == [20] * 50


LEAVES = """
import sys
import numpy as np
import quernel as qn
from kept import adds

device = qn.device(sys.argv[1])
x = device.zeros(1000, qn.i32)
stream = device.stream()
adds.over(1000, device=device)(x, 1)
device.synchronize()
adds.over(1000, device=device, stream=stream)(x, 1)
with device.graph() as graph:
    adds.over(1000, device=device)(x, 1)
graph()
bound = adds.over(1000, device=device).bind(x, 2)
bound()
event = stream.record()
print("left as it is")
"""
KEPT = """
import quernel as qn

@qn.kernel
def adds(x: qn.Array[qn.i32], by: qn.i32):
    i = qn.global_id()
    x[i] += by
"""


def test_a_process_ends_well_with_everything_left_open(quernel_device: Any, tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(KEPT)
    done = run_program(tmp_path, "leaves.py", LEAVES, quernel_device.name)
    assert (done.returncode, done.stdout) == (0, "left as it is\n"), done.stderr
    assert "Traceback" not in done.stderr


FORKS = """
import json, os, sys
import numpy as np
import quernel as qn
from kept import adds

device = qn.device(sys.argv[1])
x = device.zeros(10, qn.i32)
adds.over(10, device=device)(x, 1)
device.synchronize()
child = os.fork()
if not child:
    try:
        adds.over(10, device=device)(x, 5)
        code = 0 if x.numpy().tolist() == [6] * 10 else 3
    except qn.errors.DeviceError as error:
        code = 1 if error.fix else 4
    except BaseException:
        code = 5
    os._exit(code)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
adds.over(10, device=device)(x, 2)
print(json.dumps({"child": code, "parent": x.numpy().tolist()}))
"""


def test_a_forked_child_goes_on_or_is_told_that_it_cannot(quernel_device: Any, tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(KEPT)
    assert hasattr(os, "fork"), "written for systems that fork"
    said = said_by(tmp_path, "forks.py", FORKS, quernel_device.name)
    assert said["child"] == (0 if quernel_device.operations.survives_fork else 1)
    assert said["parent"] == [3] * 10
