from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from quernel.plugins.entries import BACKENDS, PLUGINS, installed_entries, installed_version


def found(group: str, path: Path) -> list[tuple[str, str, str, str]]:
    return [(e.name, e.module, e.distribution, e.version) for e in installed_entries(group, [str(path)], anew=True)]


def test_entries_are_found_by_group_and_sorted(install: Any, place: Path) -> None:
    install("quernel-zeta", {BACKENDS: {"zeta": "plug_zeta [extra]"}, "console_scripts": {"z": "plug_z:main"}}, "0.3")
    install("Quernel.Alpha", {BACKENDS: {"alpha": "plug_alpha.plugin"}, PLUGINS: {"watch": "plug_watch"}})
    install("unrelated", {"console_scripts": {"x": "y:z"}})
    assert found(BACKENDS, place) == [
        ("alpha", "plug_alpha.plugin", "quernel-alpha", "1.0"),
        ("zeta", "plug_zeta", "quernel-zeta", "0.3"),
    ]
    assert found(PLUGINS, place) == [("watch", "plug_watch", "quernel-alpha", "1.0")]


def test_entries_agree_with_importlib_metadata() -> None:
    expected = {(e.name, e.value) for e in importlib.metadata.entry_points(group=BACKENDS)}
    assert {(e.name, e.module) for e in installed_entries(BACKENDS)} == expected
    assert ("reference", "quernel.reference.plugin") in expected


def test_first_distribution_of_a_name_on_the_path_counts(install: Any, place: Path, tmp_path: Path) -> None:
    install("dup", {BACKENDS: {"one": "plug_one"}}, "1.0")
    shadow = tmp_path / "later"
    folder = shadow / "dup-2.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "entry_points.txt").write_text(f"[{BACKENDS}]\ntwo = plug_two\n")
    names = [entry.name for entry in installed_entries(BACKENDS, [str(place), str(shadow)], anew=True)]
    assert names == ["one"]


def test_development_install_with_egg_info_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "quernel_dev.egg-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(f"# comment\n[{BACKENDS}]\ndev=plug_dev\n")
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: quernel-dev\nVersion: 9.9\n")
    assert found(BACKENDS, tmp_path) == [("dev", "plug_dev", "quernel-dev", "9.9")]


def test_archive_on_the_path_is_looked_into(tmp_path: Path) -> None:
    archive = tmp_path / "bundle.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: zipped\nVersion: 1.0\n")
        file.writestr("zipped-1.0.dist-info/entry_points.txt", f"[{BACKENDS}]\nzipped = plug_zipped\n")
    assert found(BACKENDS, archive) == [("zipped", "plug_zipped", "zipped", "1.0")]


def test_finder_of_another_tool_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Odd(importlib.metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            if filename == "entry_points.txt":
                return f"[{BACKENDS}]\nodd = plug_odd\n"
            return "Name: odd-dist\nVersion: 3\n" if filename == "METADATA" else None

        def locate_file(self, path: Any) -> Any:
            return path

    class Finder:
        def find_spec(self, *args: object) -> None:
            return None

        def find_distributions(self, context: object = None) -> list[Odd]:
            return [Odd()]

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert ("odd", "plug_odd", "odd-dist", "3") in found(BACKENDS, tmp_path)


def test_finders_of_others_are_asked_for_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Finder:
        def find_distributions(self, context: Any) -> list[Any]:
            asked.append(list(context.path))
            return []

        def find_spec(self, *arguments: object) -> None:
            return None

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert installed_entries(BACKENDS, [str(tmp_path)], anew=True) == ()
    assert asked == [[str(tmp_path)]]


def test_missing_and_unreadable_places_are_passed_over(tmp_path: Path, install: Any, place: Path) -> None:
    (tmp_path / "broken-1.dist-info").write_text("a file, not a folder")
    folder = tmp_path / "binary-1.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_bytes(b"\xff\xfe[quernel.backends]\n\x00")
    install("good", {BACKENDS: {"good": "plug_good"}})
    names = [entry.name for entry in installed_entries(BACKENDS, [str(tmp_path / "nowhere"), str(place)])]
    assert names == ["good"]


def test_what_was_found_on_a_path_is_used_again_until_asked_anew(install: Any, place: Path) -> None:
    path = [str(place), "marker"]
    assert installed_entries(BACKENDS, path) == ()
    install("late", {BACKENDS: {"late": "plug_late"}})
    assert installed_entries(BACKENDS, path) == ()
    assert [entry.name for entry in installed_entries(BACKENDS, path, anew=True)] == ["late"]


def test_versions_agree_with_importlib_metadata(place: Path, tmp_path: Path) -> None:
    for name in ("numpy", "attrs", "NumPy"):
        assert installed_version(name) == importlib.metadata.version(name)
    assert installed_version("no-such-distribution") is None
    (tmp_path / "some_thing-1.2.dist-info").mkdir()
    (tmp_path / "Other.Thing-2.0-py3.11.egg-info").mkdir()
    (tmp_path / "some_thing_else-9.9.dist-info").mkdir()
    (place / "some_thing-0.1.dist-info").mkdir(parents=True)
    path = [str(tmp_path / "missing"), str(tmp_path), str(place)]
    assert installed_version("some-thing", path) == "1.2"
    assert installed_version("other-thing", path) == "2.0"
