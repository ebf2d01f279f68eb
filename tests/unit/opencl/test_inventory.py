"""What the backend says of drivers and devices, working and broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.opencl.harness import infos

from quernel.errors import DeviceError
from quernel.installing import install_backend
from quernel.runtime.operations import DeviceInfo, Unavailable
from quernel_opencl import _intel, _toolchain, inventory
from quernel_opencl.plugin import OpenclBackend

needs_device = pytest.mark.skipif(not infos(), reason="needs an OpenCL device, e.g. pip install quernel-opencl[pocl]")


def in_a_fresh_process(code: str, **environment: str) -> str:
    """What a program prints that has not looked for drivers yet."""
    import os

    program = [sys.executable, "-c", code]
    variables = {**os.environ, **environment}
    return subprocess.run(program, env=variables, capture_output=True, text=True, check=True, timeout=120).stdout


@needs_device
def test_devices_are_listed_with_their_platform() -> None:
    for number, info in enumerate(infos()):
        assert isinstance(info, DeviceInfo)
        assert (info.backend, info.index) == ("opencl", number)
        assert info.kind in ("cpu", "gpu", "accelerator")
        assert info.name.endswith(")")
        assert info.memory_bytes > 0


@needs_device
def test_targets_are_named_by_number_or_part_of_the_name() -> None:
    backend = OpenclBackend()
    assert backend.target_info("").fingerprint == backend.target_info("0").fingerprint
    with pytest.raises(DeviceError, match="no OpenCL device is called 'sm_90'"):
        backend.target_info("sm_90")


@needs_device
def test_fingerprints_tell_devices_apart() -> None:
    backend = OpenclBackend()
    fingerprints = [backend.target_info(str(info.index)).fingerprint for info in infos()]
    assert len(set(fingerprints)) == len(fingerprints)


@needs_device
def test_a_working_machine_has_no_problems() -> None:
    health = OpenclBackend().health()
    assert health.problems == ()
    assert "pyopencl" in dict(health.versions)


def test_no_driver_is_said_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_toolchain, "find_devices", lambda: ((), ()))
    monkeypatch.setattr(_toolchain, "icd_files", list)
    found = OpenclBackend().devices()
    assert isinstance(found, Unavailable)
    assert "no OpenCL driver" in found.reason
    assert install_backend("opencl", extra="pocl") in found.fix
    (problem,) = OpenclBackend().health().problems
    assert problem.reason == "no OpenCL driver was found"


def test_a_platform_that_lists_no_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_toolchain, "find_devices", lambda: ((), ("Some Platform: DEVICE_NOT_FOUND",)))
    monkeypatch.setattr(_toolchain, "icd_files", list)
    (problem,) = OpenclBackend().health().problems
    assert problem.reason == "platform Some Platform: DEVICE_NOT_FOUND"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "names no library"),
        ("/nowhere/libdriver.so", "names /nowhere/libdriver.so, which is not there"),
        ("libnosuchdriver.so.7", "which cannot be loaded"),
        ("{folder}/text.so", "which cannot be loaded"),
    ],
)
def test_a_broken_entry_is_named_with_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, reason: str
) -> None:
    (tmp_path / "text.so").write_text("not a library")
    entry = tmp_path / "broken.icd"
    entry.write_text(content.format(folder=tmp_path))
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setattr(_toolchain, "find_devices", lambda: ((), ()))
    problems = [problem for problem in inventory.health("").problems if str(entry) in problem.reason]
    assert len(problems) == 1
    assert reason in problems[0].reason
    assert str(entry) in problems[0].fix


def test_a_broken_entry_does_not_hide_working_drivers(tmp_path: Path) -> None:
    (tmp_path / "broken.icd").write_text("/nowhere/libdriver.so")
    code = (
        "from quernel_opencl.plugin import OpenclBackend as B; b = B(); d = b.devices();"
        "print(len(d) if isinstance(d, tuple) else 0, len(b.health().problems))"
    )
    devices, problems = in_a_fresh_process(code, OCL_ICD_VENDORS=str(tmp_path)).split()
    assert int(problems) == 1
    if any(info.name.endswith("(PoCL)") for info in infos()):
        assert int(devices) >= 1


@pytest.mark.skipif(_intel.installed_library() is None, reason="needs pip install quernel-opencl[intel]")
def test_intels_runtime_is_visible_and_leaves_nothing_behind() -> None:
    code = (
        "import os, glob, tempfile; from quernel_opencl import _toolchain as t; found, _ = t.find_devices();"
        "print(any('Intel' in f.key.platform for f in found), os.environ.get('OCL_ICD_VENDORS'),"
        " len(glob.glob(tempfile.gettempdir() + '/quernel-icd-*')))"
    )
    assert in_a_fresh_process(code, OCL_ICD_VENDORS="").split()[:2] == ["True", "None"]


def test_looking_at_the_backend_imports_no_driver() -> None:
    code = (
        "import sys, quernel_opencl.plugin as p; p.quernel_backend();"
        "print(any(name.split('.')[0] == 'pyopencl' for name in sys.modules))"
    )
    assert in_a_fresh_process(code).strip() == "False"


def test_the_lowering_imports_no_driver() -> None:
    code = (
        "import sys, quernel_opencl.lowering, quernel_opencl.compiler, quernel_opencl.types;"
        "print(any(name.split('.')[0] == 'pyopencl' for name in sys.modules))"
    )
    assert in_a_fresh_process(code).strip() == "False"
