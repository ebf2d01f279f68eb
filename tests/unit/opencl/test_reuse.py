"""What is compiled once is not compiled again: by source, by IR, and in the next process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.opencl.harness import infos

pytestmark = pytest.mark.skipif(not infos(), reason="needs an OpenCL device, e.g. pip install quernel-opencl[pocl]")

PROGRAM = """
import json, sys
import numpy as np
import quernel as qn
import quernel.compiler.records as kept
from quernel_opencl import _toolchain

builds = []
build = _toolchain.build_binary
_toolchain.build_binary = lambda *given: (builds.append(1), build(*given))[1]

@qn.kernel
def first(x):
    i = qn.global_id()
    int_ = x[i] * 2.0
    x[i] = int_ + 1.0

@qn.kernel
def second(x):  # other IR, but the name becomes the same in the text
    i = qn.global_id()
    int = x[i] * 2.0
    x[i] = int + 1.0

@qn.kernel
def third(x):
    i = qn.global_id()
    int_ = x[i] * 2.0
    x[i] = int_ + 1.0

records = []
append = kept.append_records

def watched(environment, closed, batch, level):
    records.extend((record.kernel, record.outcome.value, record.rekeyed_by) for record in closed)
    append(environment, closed, batch, level)

kept.append_records = watched
device = qn.device(sys.argv[1])
kernels = {"first": first, "second": second, "third": third}
for name in sys.argv[2].split(","):
    x = device.array(np.ones(10, np.float32))
    kernels[name].over(10)(x)
    assert (x.numpy() == 3.0).all(), x
print(json.dumps([records, len(builds)]))
"""


def run(folder: Path, names: str, number: int) -> tuple[list[list[str | None]], int]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), f"opencl:{number}", names]
    variables = {**os.environ, "QUERNEL_ENVIRONMENT": str(folder / "environment")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    records, builds = json.loads(done.stdout.splitlines()[-1])
    return records, builds


@pytest.mark.parametrize("number", range(len(infos())))
def test_equal_texts_under_two_names_are_built_once_and_the_next_process_builds_nothing(
    tmp_path: Path, number: int
) -> None:
    names = "first,second,third"
    records, builds = run(tmp_path, names, number)
    assert [tuple(record) for record in records] == [
        ("first", "compiled", None),
        ("second", "rekeyed", "source"),
        ("third", "rekeyed", "ir"),
    ]
    assert builds == 1
    records, builds = run(tmp_path, names, number)
    assert [record[1] for record in records] == ["loaded", "loaded", "loaded"]
    assert builds == 0
