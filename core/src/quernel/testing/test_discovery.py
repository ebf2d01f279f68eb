"""How a backend is found: its entry point, its name, its version of the API, its devices before any is opened."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import attrs
import pytest

import quernel as qn
from quernel.api.wiring import catalog
from quernel.capabilities import TargetInfo
from quernel.errors import DeviceError, PluginError
from quernel.plugins import BACKENDS, installed_entries
from quernel.runtime.operations import PLUGIN_API, Backend, Health
from quernel.testing.processes import said_by


def test_the_backend_is_listed_as_one_that_works(quernel_device: Any) -> None:
    infos = [info for info in qn.backends() if info.name == quernel_device.info.backend and info.ok]
    assert len(infos) == 1
    assert infos[0].distribution
    assert infos[0].version
    assert (infos[0].reason, infos[0].fix) == ("", "")


def test_its_entry_names_a_module_of_this_api(quernel_device: Any) -> None:
    name = quernel_device.info.backend
    modules = [importlib.import_module(entry.module) for entry in installed_entries(BACKENDS) if entry.name == name]
    made = [module.quernel_backend() for module in modules]
    assert [module.QUERNEL_PLUGIN_API for module in modules] == [PLUGIN_API] * len(modules)
    assert all(isinstance(backend, Backend) and backend.name == name for backend in made)
    assert made


def test_a_backend_of_a_near_name_is_refused_with_the_right_one(quernel_device: Any) -> None:
    name = quernel_device.info.backend
    with pytest.raises(PluginError, match=f"no backend is named '{name}x'; installed: .*{name}") as caught:
        qn.device(f"{name}x")
    assert f"did you mean {name!r}?" in str(caught.value.fix)


UNOPENED = """
import json, sys
import quernel as qn
from quernel.api.wiring import catalog

backend = catalog().load(sys.argv[1])
def refuse(*_):
    raise SystemExit("a device was opened")
type(backend).open = refuse
known = qn.devices(sys.argv[1])
assert qn.devices(sys.argv[1]) == known
target = backend.target_info("")
print(json.dumps([[info.backend, info.index, info.name, info.kind] for info in known]
                 + [[target.backend, target.name, target.fingerprint]]))
"""


def test_its_devices_are_known_without_opening_one(quernel_device: Any, tmp_path: Path) -> None:
    name = quernel_device.info.backend
    *devices, (backend, target, fingerprint) = said_by(tmp_path, "unopened.py", UNOPENED, name)
    assert [info[1] for info in devices] == list(range(len(devices)))
    assert {info[0] for info in devices} == {name} == {backend}
    assert all(info[2] for info in devices)
    assert {info[3] for info in devices} <= {"cpu", "gpu", "accelerator"}
    assert target
    assert fingerprint


IMPORTED = """
import importlib, json, sys
import attrs, numpy
import quernel as qn
import quernel.runtime.operations
from quernel.plugins import BACKENDS, installed_entries

before = set(sys.modules)
for entry in installed_entries(BACKENDS):
    if entry.name == sys.argv[1]:
        importlib.import_module(entry.module).quernel_backend()
standard = sys.stdlib_module_names
new = {name for name in set(sys.modules) - before if name.partition(".")[0] not in standard}
native = [name for name in new if str(getattr(sys.modules[name], "__file__", None) or "").endswith((".so", ".pyd"))]
print(json.dumps({"native": sorted(native)}))
"""


def test_finding_it_loads_nothing_native(quernel_device: Any, tmp_path: Path) -> None:
    assert said_by(tmp_path, "imported.py", IMPORTED, quernel_device.info.backend) == {"native": []}


def test_device_strings_name_one_object_per_device(quernel_device: Any) -> None:
    info = quernel_device.info
    assert qn.device(f"{info.backend}:{info.index}") is quernel_device
    assert qn.device(quernel_device.name) is quernel_device
    assert qn.device(quernel_device.name.upper()) is quernel_device
    assert qn.devices(info.backend)[info.index] == info
    if info.uuid:
        assert qn.device(f"{info.backend}:{info.uuid}") is quernel_device


def test_a_device_that_is_not_there_is_an_error_with_its_fix(quernel_device: Any) -> None:
    count = len(qn.devices(quernel_device.info.backend))
    with pytest.raises(DeviceError, match=str(count)) as caught:
        qn.device(f"{quernel_device.info.backend}:{count}")
    assert caught.value.fix


def test_a_target_that_it_does_not_know_is_an_error_with_its_fix(quernel_device: Any) -> None:
    with pytest.raises(DeviceError, match="no such target") as caught:
        quernel_device.backend.target_info("no such target")
    assert caught.value.fix


def test_what_a_compiler_knows_of_the_device_is_a_frozen_value(quernel_device: Any) -> None:
    info = quernel_device.target_info
    assert isinstance(info, TargetInfo)
    assert info.backend == quernel_device.info.backend
    assert pickle.loads(pickle.dumps(info)) == info
    assert hash(pickle.loads(pickle.dumps(info))) == hash(info)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        info.name = "another"


def test_its_limits_are_such_that_something_runs(quernel_device: Any) -> None:
    info = quernel_device.target_info
    assert info.limits.max_block_threads >= 1
    assert info.subgroup_size >= 1
    assert min(info.limits.max_block) >= 1
    assert min(info.limits.max_grid) >= 1
    assert max(info.limits.max_block) <= info.limits.max_block_threads
    assert info.limits.max_shared_bytes >= (1024 if info.capabilities.barriers else 0)


def test_its_health_is_told_and_never_raised(quernel_device: Any) -> None:
    health = quernel_device.backend.health()
    assert isinstance(health, Health)
    assert all(name and version for name, version in health.versions)
    assert all(problem.reason and problem.fix for problem in health.problems)


def test_its_known_gaps_have_reasons(quernel_device: Any) -> None:
    gaps = catalog().load(quernel_device.info.backend).known_gaps()
    assert all("::test_" in pattern and reason for pattern, reason in gaps.items())
