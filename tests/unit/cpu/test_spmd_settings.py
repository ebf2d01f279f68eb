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


def test_whose_mathematics_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_CPU_MATHEMATICS", raising=False)
    usual = host_target()
    assert usual.detail("mathematics") == "own"
    monkeypatch.setenv("QUERNEL_CPU_MATHEMATICS", "library")
    assert host_target().detail("mathematics") == "library"
    assert host_target().fingerprint != usual.fingerprint
    monkeypatch.setenv("QUERNEL_CPU_MATHEMATICS", "theirs")
    with pytest.raises(SettingError, match="own or library"):
        host_target()


def test_an_unknown_emitter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_CPU_EMITTER", "simd")
    with pytest.raises(SettingError, match="spmd or scalar"):
        host_target()
