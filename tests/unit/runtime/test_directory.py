from __future__ import annotations

import contextvars
import re
import threading
from types import MethodType
from typing import Any

import pytest
from tests.unit.runtime.scripted import ScriptedBackend, Source

from quernel.errors import DeviceError, LaunchError, PluginError, SettingError
from quernel.installing import install_backend
from quernel.runtime.asking import ask_health
from quernel.runtime.directory import DeviceDirectory, directory, use
from quernel.runtime.operations import DeviceInfo, Unavailable

CUDA = [("gpu", "GPU A"), ("gpu", "GPU B")]
OPENCL = [("cpu", "CL CPU"), ("gpu", "CL GPU")]
CPU = [("cpu", "Host")]


def test_device_is_one_object_however_it_is_named() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", CUDA)))
    device = found.device("cuda")
    assert found.device("CUDA:0") is device
    assert found.device("cuda:gpu a") is device
    assert found.device(found.infos()[0]) is device
    assert found.device("cuda:1") is not device


def test_naming_a_backend_loads_that_one_only() -> None:
    source = Source(ScriptedBackend("cuda", CUDA), ScriptedBackend("cpu", CPU))
    DeviceDirectory(source).device("cuda:1")
    assert set(source.loaded) == {"cuda"}


def test_infos_open_no_device_and_pass_over_backends_without_any() -> None:
    cuda, opencl = ScriptedBackend("cuda", CUDA), ScriptedBackend("opencl")
    infos = DeviceDirectory(Source(cuda, opencl)).infos()
    assert [info.name for info in infos] == ["GPU A", "GPU B"]
    assert cuda.opened == []


def test_infos_of_a_named_backend_without_devices_say_why() -> None:
    with pytest.raises(DeviceError, match=r"opencl has no devices: no driver\n  fix: install it"):
        DeviceDirectory(Source(ScriptedBackend("opencl"))).infos("opencl")


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        ({"cuda": CUDA, "opencl": OPENCL, "cpu": CPU}, "GPU A"),
        ({"opencl": OPENCL, "cpu": CPU}, "CL GPU"),
        ({"opencl": OPENCL[:1], "cpu": CPU}, "Host"),
        ({"opencl": OPENCL[:1]}, "CL CPU"),
        ({"other": [("gpu", "Other")], "opencl": OPENCL[:1], "cpu": CPU}, "Other"),
        ({"other": [("cpu", "Other")], "opencl": OPENCL[:1]}, "CL CPU"),
        ({"cpu": CPU, "reference": [("cpu", "Interpreter")]}, "Host"),
    ],
)
def test_auto_takes_gpus_first_and_the_host_before_opencl_on_it(backends: dict[str, Any], expected: str) -> None:
    source = Source(*(ScriptedBackend(name, devices) for name, devices in backends.items()))
    assert DeviceDirectory(source).device("auto").info.name == expected


def test_auto_never_takes_the_interpreter_and_says_how_to_get_a_backend() -> None:
    source = Source(ScriptedBackend("reference", [("cpu", "Interpreter")]))
    with pytest.raises(DeviceError, match=f"no backend is installed\n  fix: {re.escape(install_backend('cpu'))}"):
        DeviceDirectory(source).device("auto")


@pytest.mark.parametrize("spec", ["gpu", "GPU:0", "accelerator"])
def test_kind_of_device_without_a_backend_says_how_to_name_one(spec: str) -> None:
    kind = spec.lower().partition(":")[0]
    what = f'\'{kind}\' is a kind of device, not a backend\n  fix: write "auto" .*"opencl:{kind}"'
    for ask in (DeviceDirectory(Source(ScriptedBackend("cpu", CPU))).device, DeviceDirectory().infos):
        if ask.__name__ == "device" or ":" not in spec:
            with pytest.raises(DeviceError, match=what):
                ask(spec)


def test_auto_goes_on_past_a_device_that_cannot_be_opened_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(ScriptedBackend("cuda", CUDA, broken=True), ScriptedBackend("cpu", CPU))
    assert DeviceDirectory(source).device("auto").info.name == "Host"
    assert "cuda:0 cannot be opened" in caplog.text


def test_comma_list_takes_the_first_that_is_there() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cpu", CPU)))
    assert found.device("cuda,cpu").name == "cpu:0"


def test_comma_list_of_which_nothing_is_there_gives_every_reason() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("opencl")))
    with pytest.raises(DeviceError, match=r"(?s)none of 'cuda,opencl'.*cuda: no backend is named.*opencl: .*no driver"):
        found.device("cuda,opencl")


def test_missing_backend_raises_when_it_is_asked_for_by_name() -> None:
    with pytest.raises(PluginError, match="'tpu'"):
        DeviceDirectory(Source(ScriptedBackend("cpu", CPU))).device("tpu")


def test_target_for_compiling_is_refused_as_a_device() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", CUDA, targets=("sm_90",))))
    with pytest.raises(DeviceError, match="cuda:sm_90 is a target for compiling, not a device"):
        found.device("cuda:sm_90")


def test_target_is_told_apart_even_where_no_driver_is() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", Unavailable("no driver", "get one"), targets=("sm_90",))))
    with pytest.raises(DeviceError, match="is a target for compiling"):
        found.device("cuda:sm_90")


def test_selector_that_matches_nothing_shows_what_there_is() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", CUDA)))
    with pytest.raises(DeviceError, match=r"no device of cuda matches 'radeon'; it has: cuda:0 \(GPU A\)"):
        found.device("cuda:radeon")


def test_closed_device_is_opened_anew() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", CUDA)))
    first = found.device("cuda")
    first.close()
    assert found.device("cuda") is not first
    with pytest.raises(LaunchError, match="cuda:0 is closed"):
        found.device(first)


def test_default_device_that_was_closed_is_opened_anew_for_the_next_launch() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", CUDA)))
    found.set_default("cuda:1")
    first = found.current()
    first.close()
    again = found.current()
    assert (again.name, again.is_closed) == ("cuda:1", False)
    assert found.named() is again is found.device("cuda:1")
    again.close()
    opened = found.device("cuda:1")
    assert found.current() is opened


def test_used_device_that_was_closed_is_opened_anew_for_the_next_launch(installed: Any) -> None:
    installed(ScriptedBackend("cuda", CUDA))
    with use("cuda:1") as first:
        first.close()
        assert (directory.current().name, directory.current().is_closed) == ("cuda:1", False)


def test_default_device_that_a_fork_left_behind_says_so() -> None:
    found = DeviceDirectory(Source(ScriptedBackend("cuda", CUDA)))
    found.set_default("cuda:1")
    found.current().renew_after_fork()
    with pytest.raises(DeviceError, match="before this process was forked"):
        found.current().check_open()


def test_host_is_cpu_before_others_and_only_where_memory_is_shared() -> None:
    away = ScriptedBackend("aaa", CPU)
    here = ScriptedBackend("cpu", CPU, host_accessible=True)
    assert DeviceDirectory(Source(away, here)).host().name == "cpu:0"
    with pytest.raises(DeviceError, match="no device takes NumPy arrays"):
        DeviceDirectory(Source(away)).host()


@pytest.mark.parametrize("part", ["devices", "open"])
def test_setting_that_is_not_understood_is_raised_and_no_other_device_taken(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, *arguments: object) -> Any:
        raise SettingError("QUERNEL_CPU_EMITTER='maybe' is not understood", fix="set it to spmd or scalar")

    broken = ScriptedBackend("cpu", CPU, host_accessible=True)
    monkeypatch.setattr(broken, part, MethodType(refuse, broken))
    among = DeviceDirectory(Source(broken, ScriptedBackend("zzz", CPU, host_accessible=True)))
    for ask in (among.host, among.current):
        with pytest.raises(SettingError, match="QUERNEL_CPU_EMITTER"):
            ask()


@pytest.mark.parametrize("value", ["nothing", "cpu:7", "nothing,cpu:7", ":3"])
def test_wrong_device_of_the_variable_is_refused_by_the_variables_name(
    installed: Any, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    installed(ScriptedBackend("cpu", CPU))
    monkeypatch.setenv("QUERNEL_DEVICE", value)
    with pytest.raises((DeviceError, PluginError), match=f"QUERNEL_DEVICE='{value}' names no device") as caught:
        directory.current()
    assert "set QUERNEL_DEVICE" in str(caught.value.fix)


class OddError(DeviceError):
    """A backend's own, made of other things than ours are."""

    def __init__(self, code: int) -> None:
        super().__init__(f"status {code}")


def test_error_of_a_backend_with_no_fix_names_the_variable_too(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, info: object) -> Any:
        raise OddError(7)

    broken = ScriptedBackend("cpu", CPU)
    monkeypatch.setattr(broken, "open", MethodType(refuse, broken))
    installed(broken)
    monkeypatch.setenv("QUERNEL_DEVICE", "cpu")
    with pytest.raises(DeviceError, match=r"^QUERNEL_DEVICE='cpu' names no device .* status 7") as caught:
        directory.current()
    assert caught.value.fix == "set QUERNEL_DEVICE to another device, or unset it"


def test_use_wins_over_the_default_and_that_over_the_variable(installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(ScriptedBackend("cuda", CUDA), ScriptedBackend("cpu", CPU))
    assert directory.named() is None
    assert directory.current().name == "cuda:0"
    monkeypatch.setenv("QUERNEL_DEVICE", "cpu")
    assert directory.current().name == "cpu:0"
    directory.set_default("cuda:1")
    assert directory.current().name == "cuda:1"
    with use("cuda:0") as outer:
        assert directory.current() is outer
        with use("cpu"):
            assert directory.current().name == "cpu:0"
        assert directory.current() is outer
    assert directory.current().name == "cuda:1"
    directory.set_default(None)
    assert directory.current().name == "cpu:0"


def test_use_holds_for_its_context_and_not_for_other_threads(installed: Any) -> None:
    installed(ScriptedBackend("cuda", CUDA))
    seen: list[Any] = []
    with use("cuda:1"):
        plain = threading.Thread(target=lambda: seen.append(directory.named()))
        plain.start()
        plain.join()
        context = contextvars.copy_context()
    assert seen == [None]
    assert context.run(directory.named) is directory.device("cuda:1")


def test_threads_that_open_one_device_at_once_get_one_object(installed: Any) -> None:
    backend = ScriptedBackend("cuda", CUDA)
    installed(backend)
    barrier = threading.Barrier(8)
    found: list[Any] = []

    def open_it() -> None:
        barrier.wait()
        found.append(directory.device("cuda"))

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert len(backend.opened) == 1


def fail(*arguments: Any) -> Any:
    raise RuntimeError("a bug")


def leave(*arguments: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (fail, r"devices\(\) failed: RuntimeError: a bug"),
        (leave, r"devices\(\) failed: SystemExit: 3"),
        (lambda: None, r"devices\(\) gave None"),
        (lambda: (7,), r"devices\(\) gave a tuple, not a tuple of DeviceInfo"),
        (lambda: (DeviceInfo("cpu", 0, "stolen", "gpu"),), r"devices\(\) gave a device of another backend"),
    ],
)
def test_backend_that_breaks_its_contract_hides_no_other(devices, reason, caplog, monkeypatch) -> None:
    bad = ScriptedBackend("bad", CUDA)
    monkeypatch.setattr(bad, "devices", devices)
    found = DeviceDirectory(Source(bad, ScriptedBackend("cpu", CPU)))
    for _ in range(2):
        assert [info.name for info in found.infos()] == ["Host"]
    assert len(caplog.records) == 1
    assert found.device().info.name == "Host"
    assert found.device("bad,cpu").info.name == "Host"
    for ask in (found.infos, found.device):
        with pytest.raises(PluginError, match=reason):
            ask("bad")


@pytest.mark.parametrize(
    ("operations", "reason"),
    [(fail, "RuntimeError: a bug"), (leave, "SystemExit: 3"), (lambda info: None, "gave None")],
)
def test_device_that_its_backend_cannot_open_hides_no_other(operations, reason, caplog, monkeypatch) -> None:
    bad = ScriptedBackend("bad", CUDA)
    monkeypatch.setattr(bad, "open", operations)
    found = DeviceDirectory(Source(bad, ScriptedBackend("cpu", CPU)))
    assert found.device().info.name == "Host"
    assert "bad:0 cannot be opened" in caplog.text
    with pytest.raises(PluginError, match=rf"the backend 'bad' does not work: open\(\) of device 0.*{reason}"):
        found.device("bad")


@pytest.mark.parametrize("health", [fail, leave, lambda: None, dict])
def test_health_of_a_broken_backend_is_an_error_of_its_own(health, monkeypatch) -> None:
    bad = ScriptedBackend("bad", CUDA)
    monkeypatch.setattr(bad, "health", health)
    with pytest.raises(PluginError, match=r"the backend 'bad' does not work: health\(\)"):
        ask_health(bad)
