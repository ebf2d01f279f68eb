"""The commands that install a part of Quernel, for each way in which the core may have come here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from quernel.installing import install_backend, install_extra, upgrade

Installed = Any


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Installs a distribution's metadata, from where `direct_url` says, before all others on the path."""
    place = tmp_path / "site"
    monkeypatch.setattr(sys, "path", [str(place), *sys.path])

    def install(name: str, direct_url: dict[str, Any] | None) -> None:
        metadata = place / f"{name.replace('-', '_')}-9.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9\n")
        if direct_url is not None:
            (metadata / "direct_url.json").write_text(json.dumps(direct_url))

    return install


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    for part in ("core", "backends/cpu"):
        (folder / part).mkdir(parents=True)
        (folder / part / "pyproject.toml").touch()
    return folder


def test_backend_of_a_core_from_an_index_is_an_extra_of_it(installed: Installed) -> None:
    installed("quernel", None)
    assert install_backend("cpu") == 'pip install "quernel[cpu]"'
    assert install_backend("opencl", extra="pocl") == 'pip install "quernel-opencl[pocl]"'
    assert install_extra("demo") == 'pip install "quernel[demo]"'
    assert upgrade("quernel") == "pip install --upgrade quernel"


@pytest.mark.parametrize(("is_editable", "option"), [(True, "-e "), (False, "")])
def test_backend_of_a_core_from_a_checkout_is_installed_from_that_checkout(
    is_editable: bool, option: str, installed: Installed, checkout: Path
) -> None:
    installed("quernel", {"url": (checkout / "core").as_uri(), "dir_info": {"editable": is_editable}})
    assert install_backend("cpu") == f'pip install {option}"{checkout}/backends/cpu"'
    assert install_backend("cpu", extra="fast") == f'pip install {option}"{checkout}/backends/cpu[fast]"'
    assert install_extra("demo") == f'pip install {option}"{checkout}/core[demo]"'
    assert upgrade("quernel") == f'pip install {option}"{checkout}/core"'


def test_what_a_checkout_lacks_comes_from_the_index(installed: Installed, checkout: Path) -> None:
    installed("quernel", {"url": (checkout / "core").as_uri(), "dir_info": {"editable": True}})
    assert install_backend("cuda") == 'pip install "quernel[cuda]"'
    assert upgrade("another") == "pip install --upgrade another"


def test_checkout_that_is_gone_is_not_named(installed: Installed, tmp_path: Path) -> None:
    installed("quernel", {"url": (tmp_path / "gone" / "core").as_uri(), "dir_info": {"editable": True}})
    assert install_backend("cpu") == 'pip install "quernel[cpu]"'
    assert upgrade("quernel") == "pip install --upgrade quernel"


def test_backend_of_a_core_from_a_repository_comes_from_the_same_commit(installed: Installed) -> None:
    commit = {"vcs": "git", "commit_id": "abc123", "requested_revision": "main"}
    installed("quernel", {"url": "https://host/q.git", "subdirectory": "core", "vcs_info": commit})
    place = "git+https://host/q.git@abc123#subdirectory="
    assert install_backend("cpu") == f'pip install "quernel-cpu @ {place}backends/cpu"'
    assert install_extra("demo") == f'pip install "quernel[demo] @ {place}core"'


def test_core_from_a_wheel_file_names_the_index(installed: Installed, tmp_path: Path) -> None:
    installed("quernel", {"url": (tmp_path / "quernel-9.whl").as_uri(), "archive_info": {}})
    assert install_backend("cpu") == 'pip install "quernel[cpu]"'
