from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plugins.conftest import backend_source

from quernel.errors import PluginError
from quernel.installing import install_backend, upgrade
from quernel.plugins.backends import BackendCatalog
from quernel.plugins.entries import BACKENDS
from quernel.testing.pages import blocks_of


@pytest.fixture
def catalog(place: Path) -> BackendCatalog:
    return BackendCatalog([str(place)])


def test_one_backend_is_loaded_by_name_and_no_other_imported(install: Any, catalog: BackendCatalog) -> None:
    install("a", {BACKENDS: {"one": "plug_one"}}, plug_one=backend_source("one"))
    install("b", {BACKENDS: {"two": "plug_two"}}, plug_two=backend_source("two"))
    assert catalog.names() == ("one", "two")
    backend = catalog.load("one")
    assert backend.name == "one"
    assert catalog.load("one") is backend
    assert "plug_one" in sys.modules
    assert "plug_two" not in sys.modules


BROKEN = {
    "raises": ("raise RuntimeError('boom')", "importing plug_bad failed: RuntimeError: boom"),
    "exits": ("import sys; sys.exit(3)", "importing plug_bad failed: SystemExit: 3"),
    "imports": ("import no_such_driver", "ModuleNotFoundError: No module named 'no_such_driver'"),
    "older": (backend_source("bad", api=0), "was built for plugin API 0, this core has 1"),
    "newer": (backend_source("bad", api=99), "was built for plugin API 99, this core has 1"),
    "boolean": (backend_source("bad", api=True), "was built for plugin API True, this core has 1"),
    "leaves": ("QUERNEL_PLUGIN_API = 1\ndef quernel_backend(): raise SystemExit(9)", "failed: SystemExit: 9"),
    "silent": ("def quernel_backend(): raise AssertionError('called')", "does not say QUERNEL_PLUGIN_API"),
    "nameless": ("QUERNEL_PLUGIN_API = 1", "quernel_backend\\(\\) failed: AttributeError"),
    "other": ("QUERNEL_PLUGIN_API = 1\ndef quernel_backend(): return 7", "gave a int, not a Backend"),
    "renamed": (backend_source("else"), "calls itself 'else', its entry 'bad'"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_backend_hides_no_other_and_raises_only_by_name(how: str, install: Any, catalog: BackendCatalog) -> None:
    source, reason = BROKEN[how]
    install("aaa-broken", {BACKENDS: {"bad": "plug_bad"}}, plug_bad=source)
    install("good", {BACKENDS: {"good": "plug_good"}}, plug_good=backend_source("good"))
    bad, good = catalog.infos()
    assert (bad.name, bad.distribution, bad.version, bad.ok) == ("bad", "aaa-broken", "1.0", False)
    assert bad.fix
    assert (good.name, good.ok, good.reason, good.fix) == ("good", True, "", "")
    assert catalog.load("good").name == "good"
    with pytest.raises(PluginError, match=f"backend 'bad' of aaa-broken 1.0 cannot be used: .*{reason}") as caught:
        catalog.load("bad")
    assert caught.value.fix == bad.fix


def test_newer_plugin_asks_for_a_newer_core_and_an_older_one_for_its_own_upgrade(
    install: Any, catalog: BackendCatalog
) -> None:
    install("new", {BACKENDS: {"new": "plug_new"}}, plug_new=backend_source("new", api=2))
    install("old", {BACKENDS: {"old": "plug_old"}}, plug_old=backend_source("old", api=0))
    fixes = {info.name: info.fix for info in catalog.infos()}
    assert fixes == {"new": upgrade("quernel"), "old": "pip install --upgrade old"}


def test_a_mismatch_is_reported_as_the_page_about_compatibility_shows(install: Any, catalog: BackendCatalog) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "compatibility.md"
    (shown,) = [block.text for block in blocks_of(page) if block.language == "text"]
    install("quernel-mine", {BACKENDS: {"mine": "plug_mine"}}, "2.0", plug_mine=backend_source("mine", api=2))
    with pytest.raises(PluginError, match="plugin API 2") as caught:
        catalog.load("mine")
    assert str(caught.value) == shown.rstrip("\n").replace("pip install --upgrade quernel", upgrade("quernel"))


def test_api_version_is_checked_before_anything_of_the_plugin_is_called(
    install: Any, catalog: BackendCatalog, place: Path
) -> None:
    source = f"QUERNEL_PLUGIN_API = 2\ndef quernel_backend():\n    open({str(place / 'called')!r}, 'w')\n"
    install("new", {BACKENDS: {"new": "plug_new"}}, plug_new=source)
    with pytest.raises(PluginError, match="plugin API 2"):
        catalog.load("new")
    assert not (place / "called").exists()


def test_taken_name_goes_to_the_first_that_works(install: Any, catalog: BackendCatalog) -> None:
    install("b-second", {BACKENDS: {"gpu": "plug_b"}}, plug_b=backend_source("gpu", "b"))
    install("c-third", {BACKENDS: {"gpu": "plug_c"}}, plug_c=backend_source("gpu", "c"))
    install("a-first", {BACKENDS: {"gpu": "plug_a"}}, plug_a="raise ImportError('no')")
    loaded: Any = catalog.load("gpu")
    assert loaded.marker == "b"
    first, second, third = catalog.infos()
    assert "ImportError: no" in first.reason
    assert second.ok
    assert third.reason == "the name 'gpu' is taken by b-second 1.0"
    assert third.fix == "uninstall b-second or c-third"


def test_the_core_keeps_the_name_of_its_interpreter(install: Any, catalog: BackendCatalog) -> None:
    install("quernel", {BACKENDS: {"reference": "plug_core"}}, plug_core=backend_source("reference", "core"))
    install("aardvark", {BACKENDS: {"reference": "plug_aa"}}, plug_aa=backend_source("reference", "aa"))
    loaded: Any = catalog.load("reference")
    assert loaded.marker == "core"


@pytest.mark.parametrize("name", ["cpu", "cuda", "opencl"])
def test_backend_that_is_not_installed_says_how_to_get_it(name: str, catalog: BackendCatalog) -> None:
    install = re.escape(install_backend(name))
    with pytest.raises(PluginError, match=f"the backend '{name}' is not installed\n  fix: {install}"):
        catalog.load(name)


def test_unknown_name_lists_those_installed(install: Any, catalog: BackendCatalog) -> None:
    install("a", {BACKENDS: {"one": "plug_one"}}, plug_one=backend_source("one"))
    with pytest.raises(PluginError, match="no backend is named 'tpu'; installed: one"):
        catalog.load("tpu")


@pytest.mark.parametrize(("name", "meant"), [("cup", "cpu"), ("opncl", "opencl"), ("ones", "one")])
def test_misspelt_name_shows_the_one_meant(name: str, meant: str, install: Any, catalog: BackendCatalog) -> None:
    install("a", {BACKENDS: {"one": "plug_one"}}, plug_one=backend_source("one"))
    with pytest.raises(PluginError, match=f"no backend is named '{name}'.*\n  fix: did you mean '{meant}'\\?"):
        catalog.load(name)


def test_backend_installed_later_is_found(install: Any, catalog: BackendCatalog) -> None:
    assert catalog.names() == ()
    install("late", {BACKENDS: {"late": "plug_late"}}, plug_late=backend_source("late"))
    assert catalog.load("late").name == "late"


def test_mended_backend_works_without_a_new_process(install: Any, catalog: BackendCatalog, place: Path) -> None:
    install("fixed", {BACKENDS: {"fixed": "plug_fixed"}}, plug_fixed="raise RuntimeError('not yet')")
    with pytest.raises(PluginError, match="not yet"):
        catalog.load("fixed")
    (place / "plug_fixed.py").write_text(backend_source("fixed") + "# of another size than before\n")
    sys.path_importer_cache.clear()
    assert catalog.load("fixed").name == "fixed"


@pytest.mark.parametrize("name", ["auto", "UPPER", "we ird", "a:b", "a,b", "7up"])
def test_backend_that_no_device_string_can_name_is_listed_and_never_loaded(
    name: str, install: Any, catalog: BackendCatalog
) -> None:
    install("odd", {BACKENDS: {name: "plug_odd"}}, plug_odd=backend_source(name))
    (info,) = catalog.infos()
    assert not info.ok
    assert info.reason == f"{name!r} is no name for a backend"
    assert "lower-case letters" in info.fix
    assert "plug_odd" not in sys.modules
    with pytest.raises(PluginError, match="is no name for a backend"):
        catalog.load(name)
