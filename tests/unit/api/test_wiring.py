"""Installed plugins reach the layers that do not know of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

OBSERVER = """
QUERNEL_PLUGIN_API = 1
from pathlib import Path
from quernel.errors import StoreError
HERE = Path(__file__).parent

def note(text):
    with open(HERE / "notes", "a") as file:
        file.write(text + "\\n")

def quernel_compiled(record):
    note(f"{record.kernel} {record.outcome.value}")

def quernel_batch_closed(record):
    note("batch")

class Layer:
    name = "mine"
    def find(self, name):
        note("asked")
        return None
    def close(self):
        note("closed")

def quernel_store_layers(environment):
    note(f"layers of {Path(environment.path).name}")
    return [Layer()]
"""

LAUNCH = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from observed_kernels import put
x = np.zeros(4)
for _ in range(3):
    put.over(4)(x)
assert x.tolist() == [1.0] * 4
"""


def test_observer_sees_each_compilation_once_and_its_layer_is_asked_on_a_miss(tmp_path: Path) -> None:
    info = tmp_path / "watcher-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[quernel.plugins]\nwatcher = observed_plugin\n")
    (tmp_path / "observed_plugin.py").write_text(OBSERVER)
    (tmp_path / "observed_kernels.py").write_text(
        "import quernel as qn\n@qn.kernel\ndef put(x):\n    x[qn.global_id()] = 1.0\n"
    )
    environment = {
        "PATH": "",
        "HOME": str(tmp_path),
        "PYTHONPATH": os.environ["PYTHONPATH"],
        "QUERNEL_ENVIRONMENT": str(tmp_path / "environment"),
    }
    notes = []
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", LAUNCH, str(tmp_path)], check=True, timeout=120, env=environment, capture_output=True
        )
        notes.append((tmp_path / "notes").read_text().split("\n")[:-1])
        (tmp_path / "notes").unlink()
    cold, warm = notes
    assert cold[0] == "layers of environment"
    assert cold.count("asked") == 2  # by the kernel's key, then by its IR's
    assert [note for note in cold if note.startswith("put")] == ["put compiled"]
    assert cold.count("batch") == 1
    assert cold[-1] == "closed"
    assert warm == ["layers of environment", "put loaded", "batch", "closed"]
