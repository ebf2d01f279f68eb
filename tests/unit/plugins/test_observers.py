from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from quernel.plugins.entries import PLUGINS
from quernel.plugins.observers import Observers

NOTES = """
QUERNEL_PLUGIN_API = 1
import builtins
def quernel_compiled(record): builtins.seen.append(({name!r}, "compiled", record))
def quernel_batch_closed(): builtins.seen.append(({name!r}, "closed"))
def quernel_store_layers(environment): return [{name!r} + environment]
"""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    import builtins

    notes: list[Any] = []
    monkeypatch.setattr(builtins, "seen", notes, raising=False)
    return notes


@pytest.fixture
def observers(place: Path) -> Observers:
    return Observers([str(place)])


def test_observers_need_no_marker_and_are_called_in_the_order_of_their_names(
    install: Any, observers: Observers, seen: list[Any]
) -> None:
    install("zz", {PLUGINS: {"alpha": "plug_alpha"}}, plug_alpha=NOTES.format(name="alpha"))
    install("aa", {PLUGINS: {"beta": "plug_beta"}}, plug_beta=NOTES.format(name="beta"))
    observers.compiled("record")
    observers.batch_closed("batch")
    assert seen == [
        ("alpha", "compiled", "record"),
        ("beta", "compiled", "record"),
        ("alpha", "closed"),
        ("beta", "closed"),
    ]
    assert observers.store_layers("/env") == ("alpha/env", "beta/env")


def test_nothing_is_looked_for_before_the_first_call(install: Any, observers: Observers, seen: list[Any]) -> None:
    install("late", {PLUGINS: {"late": "plug_late"}}, plug_late=NOTES.format(name="late"))
    assert "plug_late" not in sys.modules
    observers.compiled(1)
    assert "plug_late" in sys.modules
    assert seen == [("late", "compiled", 1)]


def test_raising_observer_is_logged_once_and_switched_off(
    install: Any, observers: Observers, seen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    install(
        "bad",
        {PLUGINS: {"bad": "plug_bad"}},
        plug_bad="""
        QUERNEL_PLUGIN_API = 1
        import builtins
        def quernel_compiled(record):
            builtins.seen.append("bad")
            raise RuntimeError("boom")
        def quernel_batch_closed(record): builtins.seen.append("bad closed")
        """,
    )
    install("good", {PLUGINS: {"good": "plug_good"}}, plug_good=NOTES.format(name="good"))
    with caplog.at_level(logging.WARNING):
        observers.compiled(1)
        observers.compiled(2)
        observers.batch_closed(3)
    assert seen == ["bad", ("good", "compiled", 1), ("good", "compiled", 2), ("good", "closed")]
    assert [record.getMessage() for record in caplog.records] == [
        "plugin bad is switched off: quernel_compiled raised RuntimeError: boom"
    ]
    bad, good = observers.infos()
    assert (bad.ok, bad.reason) == (False, "switched off: quernel_compiled raised RuntimeError: boom")
    assert good.ok


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("QUERNEL_PLUGIN_API = 5", "built for plugin API 5"),
        ("QUERNEL_PLUGIN_API = True", "built for plugin API True"),
        ("QUERNEL_PLUGIN_API = 1\ndef quernel_compiled(wrong): pass", "wrong"),
    ],
)
def test_broken_observer_harms_no_other(
    source: str, reason: str, install: Any, observers: Observers, seen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    install("bad", {PLUGINS: {"bad": "plug_bad"}}, plug_bad=source)
    install("good", {PLUGINS: {"good": "plug_good"}}, plug_good=NOTES.format(name="good"))
    with caplog.at_level(logging.WARNING):
        observers.compiled(1)
    assert seen == [("good", "compiled", 1)]
    assert "plugin bad of bad 1.0 is not used" in caplog.text
    bad, good = observers.infos()
    assert not bad.ok
    assert reason in bad.reason
    assert bad.fix
    assert good.ok


def test_taken_name_is_refused_to_the_later_one(install: Any, observers: Observers, seen: list[Any]) -> None:
    install("one", {PLUGINS: {"same": "plug_one"}}, plug_one=NOTES.format(name="one"))
    install("two", {PLUGINS: {"same": "plug_two"}}, plug_two=NOTES.format(name="two"))
    observers.compiled(1)
    assert seen == [("one", "compiled", 1)]
    assert [info.ok for info in observers.infos()] == [True, False]
    assert "is taken" in observers.infos()[1].reason


def test_threads_that_observe_first_at_once_load_each_plugin_once(
    install: Any, observers: Observers, seen: list[Any]
) -> None:
    install("one", {PLUGINS: {"one": "plug_one"}}, plug_one=NOTES.format(name="one"))
    barrier = threading.Barrier(6)

    def call(number: int) -> None:
        barrier.wait()
        observers.compiled(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [("one", "compiled", number) for number in range(6)]
    assert len(observers.infos()) == 1


def test_pluggy_is_imported_only_where_a_plugin_is_installed(tmp_path: Path) -> None:
    code = (
        "import sys; from quernel.plugins.observers import Observers\n"
        f"Observers([{str(tmp_path)!r}]).compiled(1)\n"
        "assert 'pluggy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_plugin_of_both_groups_is_no_observer_by_its_backend(
    install: Any, observers: Observers, seen: list[Any]
) -> None:
    source = "QUERNEL_PLUGIN_API = 1\ndef quernel_backend(): raise AssertionError('called')\n"
    install("both", {PLUGINS: {"both": "plug_both"}}, plug_both=source)
    observers.compiled(1)
    assert observers.infos()[0].ok


def test_observer_that_ends_the_process_is_switched_off_instead(install: Any, observers: Observers) -> None:
    install(
        "bad",
        {PLUGINS: {"bad": "plug_bad"}},
        plug_bad="QUERNEL_PLUGIN_API = 1\ndef quernel_batch_closed(record): raise SystemExit(9)",
    )
    observers.batch_closed(1)
    assert observers.infos()[0].reason == "switched off: quernel_batch_closed raised SystemExit: 9"
