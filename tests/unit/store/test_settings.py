from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from quernel import settings
from quernel.errors import SettingError

FLAGS = {
    "QUERNEL_CHECKED": settings.checked,
    "QUERNEL_INTERPRET": settings.interpret,
    "QUERNEL_NO_CACHE": settings.no_cache,
}


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("no", False), ("", False)]
)
def test_flag_reads_its_variable_at_call_time(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: bool
) -> None:
    monkeypatch.delenv(name, raising=False)
    assert FLAGS[name]() is False
    monkeypatch.setenv(name, text)
    assert FLAGS[name]() is value


@pytest.mark.parametrize("name", FLAGS)
def test_flag_names_variable_and_allowed_values_when_not_understood(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "maybe")
    with pytest.raises(SettingError, match=rf"{name}='maybe' is not understood; it may be 1, true, yes or on; 0"):
        FLAGS[name]()


@pytest.mark.parametrize(
    ("read", "name"),
    [(settings.environment_path, "QUERNEL_ENVIRONMENT"), (settings.device, "QUERNEL_DEVICE")],
)
def test_text_is_none_when_unset_or_blank(monkeypatch: pytest.MonkeyPatch, read: object, name: str) -> None:
    assert callable(read)
    monkeypatch.delenv(name, raising=False)
    assert read() is None
    monkeypatch.setenv(name, "  ")
    assert read() is None
    monkeypatch.setenv(name, "cuda:1")
    assert read() == "cuda:1"


def test_num_threads_reads_a_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_NUM_THREADS", raising=False)
    assert settings.num_threads() is None
    monkeypatch.setenv("QUERNEL_NUM_THREADS", "12")
    assert settings.num_threads() == 12


@pytest.mark.parametrize("text", ["4097", "99999999999", "9" * 5000, "0", "-1", "two", "1.5", "²"])
def test_num_threads_refuses_what_is_no_positive_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("QUERNEL_NUM_THREADS", text)
    with pytest.raises(SettingError, match=r"QUERNEL_NUM_THREADS=.* a whole number from 1 to 4096"):
        settings.num_threads()


def test_records_level_defaults_to_basic_and_ignores_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_RECORDS", raising=False)
    assert settings.records_level() == "basic"
    monkeypatch.setenv("QUERNEL_RECORDS", "Full")
    assert settings.records_level() == "full"


def test_records_level_refuses_unknown_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_RECORDS", "verbose")
    with pytest.raises(SettingError, match=r"QUERNEL_RECORDS='verbose' .* off, basic or full"):
        settings.records_level()


def test_variables_count_however_they_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not settings.checked()
    os.environ["QUERNEL_CHECKED"] = "1"
    try:
        assert settings.checked()
    finally:
        del os.environ["QUERNEL_CHECKED"]
    assert not settings.checked()
    monkeypatch.setattr(os, "environ", {"QUERNEL_CHECKED": "yes"})
    assert settings.checked()


def test_lock_timeout_reads_seconds_and_defaults_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_LOCK_TIMEOUT", raising=False)
    assert settings.lock_timeout_s() == 60.0
    monkeypatch.setenv("QUERNEL_LOCK_TIMEOUT", "0.5")
    assert settings.lock_timeout_s() == 0.5
    monkeypatch.setenv("QUERNEL_LOCK_TIMEOUT", "0")
    assert settings.lock_timeout_s() == 0.0


@pytest.mark.parametrize("text", ["-1", "soon", "inf", "nan"])
def test_lock_timeout_refuses_what_is_no_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("QUERNEL_LOCK_TIMEOUT", text)
    with pytest.raises(SettingError, match="a number of seconds, 0 or more"):
        settings.lock_timeout_s()


def test_compile_limit_reads_seconds_and_defaults_to_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUERNEL_COMPILE_LIMIT", raising=False)
    assert settings.compile_limit_s() == 600.0
    monkeypatch.setenv("QUERNEL_COMPILE_LIMIT", "0.5")
    assert settings.compile_limit_s() == 0.5
    monkeypatch.setenv("QUERNEL_COMPILE_LIMIT", "0")
    assert settings.compile_limit_s() is None


@pytest.mark.parametrize("text", ["-1", "soon", "inf", "nan"])
def test_compile_limit_refuses_what_is_no_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("QUERNEL_COMPILE_LIMIT", text)
    with pytest.raises(SettingError, match="a number of seconds, or 0 for any time"):
        settings.compile_limit_s()


def test_another_process_adopts_all_variables_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUERNEL_RECORDS", "full")
    monkeypatch.setenv("QUERNEL_CHECKED", "1")
    monkeypatch.setenv("OTHERS", "1")
    given = settings.variables()
    assert given["QUERNEL_RECORDS"] == "full"
    assert "OTHERS" not in given
    monkeypatch.setenv("QUERNEL_RECORDS", "off")
    monkeypatch.setenv("QUERNEL_DEVICE", "cpu")
    settings.adopt(given)
    assert settings.variables() == given
    assert os.environ["OTHERS"] == "1"


def test_every_variable_that_is_read_is_listed() -> None:
    source = Path(settings.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r"QUERNEL_[A-Z]+(?:_[A-Z]+)*", source)) == set(settings.VARIABLES)


def test_every_variable_is_looked_at_and_misspelt_ones_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"QUERNEL_DEVICE", "QUERNEL_ENVIRONMENT"}
    for name in settings.VARIABLES:
        if name not in texts:
            monkeypatch.setenv(name, "no such value")
    assert len(settings.refusals()) == len(settings.VARIABLES) - len(texts)
    assert settings.unknown_variables() == ()
    monkeypatch.setenv("QUERNEL_DEVIEC", "cpu")
    assert settings.unknown_variables() == ("QUERNEL_DEVIEC",)
