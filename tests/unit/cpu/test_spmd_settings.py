"""How kernels are written is a setting, and a part of what artifacts are kept under."""

from __future__ import annotations

import pytest

from quernel.errors import SettingError
from quernel_cpu.targets import host_target


def test_the_emitter_and_coarsening_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_CPU_EMITTER", raising=False)
    monkeypatch.delenv("QUERNEL_CPU_COARSENING", raising=False)
    usual = host_target()
    assert (usual.detail("emitter"), usual.detail("coarsening")) == ("spmd", "on")
    monkeypatch.setenv("QUERNEL_CPU_EMITTER", "scalar")
    scalar = host_target()
    monkeypatch.setenv("QUERNEL_CPU_EMITTER", "spmd")
    monkeypatch.setenv("QUERNEL_CPU_COARSENING", "0")
    plain = host_target()
    assert len({usual.fingerprint, scalar.fingerprint, plain.fingerprint}) == 3
    assert not scalar.capabilities.subgroups
    assert plain.capabilities.subgroups


def test_an_unknown_emitter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_CPU_EMITTER", "simd")
    with pytest.raises(SettingError, match="spmd or scalar"):
        host_target()
