"""The backend from outside: as its users have it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import quernel as qn

PROGRAM = """
import numpy as np
import quernel as qn

@qn.kernel
def triple(x: qn.Array[qn.f32]):
    x[qn.global_id()] *= 3

x = np.arange(10, dtype=np.float32)
triple.over(len(x), device="c")(x)
assert np.array_equal(x, np.arange(0, 30, 3))
"""


@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]


@qn.kernel
def waits(x: qn.Array[qn.i32]):
    qn.barrier()
    x[qn.global_id()] = 1


@pytest.fixture(scope="module", autouse=True)
def own_environment(tmp_path_factory):
    with qn.environment(tmp_path_factory.mktemp("environment")):
        yield


def test_every_point_runs_once():
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    saxpy.over(len(x), device="c")(2.0, x, y)
    assert np.array_equal(y, 2 * x + 1)


def test_arrays_of_the_device_come_back():
    device = qn.device("c")
    x, y = device.array(np.arange(8, dtype=np.float32)), device.zeros(8, qn.f32)
    saxpy.over(8)(3.0, x, y)
    assert np.array_equal(y.numpy(), 3 * np.arange(8))


def test_what_the_device_cannot_do_is_refused_before_it_is_compiled():
    with pytest.raises(qn.errors.ValidationError, match="has no barriers"):
        waits[1, 4](qn.device("c").zeros(4, qn.i32))


def test_another_process_compiles_nothing(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "QUERNEL_ENVIRONMENT": str(tmp_path / "environment")}

    def outcomes():
        for arguments in (["program.py"], ["-m", "quernel.cli", "records", "list", "--json"]):
            command = [sys.executable, *arguments]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert outcomes().count('"compiled"') == 1
    assert outcomes().count('"loaded"') == 1
