"""Wheels built from this tree, installed by pip in an empty environment, beside plugins that are broken."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SAXPY = """
import numpy as np
import quernel as qn

@qn.kernel
def saxpy(a: float, x: qn.Array[qn.f32], y: qn.Array[qn.f32]):
    i = qn.global_id()
    y[i] = a * x[i] + y[i]

x = np.arange(1000, dtype=np.float32)
y = np.ones_like(x)
saxpy.over(len(x))(2.0, x, y)
assert np.array_equal(y, 2 * x + 1)
print(qn.device().name)
"""


def test_installed_wheels_run_a_kernel_beside_broken_plugins(installed, tmp_path):
    (tmp_path / "saxpy.py").write_text(SAXPY)
    assert installed.run(tmp_path / "saxpy.py").startswith("cpu:0")


def test_broken_plugins_are_listed_with_their_reasons_and_hide_nothing(installed):
    listed = json.loads(installed.run("-m", "quernel.cli", "backends", "--json"))
    by_origin = {(row["name"], row["distribution"].replace("_", "-")): row for row in listed}
    assert by_origin["cpu", "quernel-cpu"]["ok"]
    assert by_origin["reference", "quernel"]["ok"]
    assert "no toolchain on this machine" in by_origin["broken", "broken-plugin"]["reason"]
    assert "999" in by_origin["future", "future-plugin"]["reason"]
    assert "taken" in by_origin["cpu", "thief-plugin"]["reason"]
    assert all(row["fix"] for row in listed if not row["ok"])


def test_a_broken_backend_raises_only_when_asked_for_by_name(installed, tmp_path):
    (tmp_path / "ask.py").write_text(
        "import quernel as qn\n"
        "assert qn.device().name\n"
        "try:\n    qn.device('broken')\n"
        "except qn.errors.PluginError as error:\n    print(error)\n"
    )
    assert "no toolchain on this machine" in installed.run(tmp_path / "ask.py")


def test_wheels_carry_types_licence_and_build_id(wheels):
    import zipfile

    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        package = "quernel_cpu" if "quernel_cpu" in wheel.name else "quernel"
        assert f"{package}/py.typed" in names
        assert f"{package}/_build_id.py" in names
        (licence,) = [name for name in names if name.endswith("licenses/LICENSE")]
        assert zipfile.ZipFile(wheel).read(licence) == (ROOT / "LICENSE").read_bytes()
        assert b"TERMS AND CONDITIONS" in (ROOT / "LICENSE").read_bytes()
        assert not [name for name in names if name.startswith("tests")]


def test_warm_start_of_an_installed_package_finds_its_kernel_in_the_store(installed, tmp_path):
    program = tmp_path / "outcome.py"
    program.write_text(
        SAXPY
        + "\nfrom quernel.store import read_records, current_environment\n"
        + "import sys\nprint(sorted({name.split('.')[1] for name in sys.modules if name.startswith('quernel.')}))\n"
    )
    installed.run(program)
    warm = installed.run(program)
    assert "'lang'" not in warm
    assert "'ir'" not in warm
