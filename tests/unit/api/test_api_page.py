"""The page of the host side is right: its examples run in order, and no public name is left out."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import quernel as qn
from quernel import settings
from quernel.runtime.launchers import BoundLaunch, Launcher
from quernel.testing.pages import blocks_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
LANGUAGE = PAGE.with_name("language.md").read_text(encoding="utf-8")
INTERNAL: dict[type, set[str]] = {
    qn.Device: {
        *("check_open", "copy_memory", "give", "is_capturing", "is_intercepted", "is_left_behind", "renew_after_fork"),
        *("keep_report", "loader", "show_reports"),
    },
    qn.DeviceArray: {"address", "allocation", "bounds", "launch_kind", "offset_bytes", "steps"},
    qn.Stream: {"check_open", "handle"},
    qn.Event: {"handle"},
    qn.Graph: {"applies", "captures", "take"},
    qn.Profile: {"applies", "captures", "take"},
}
"""What is there for backends and for the runtime itself."""


def test_the_examples_run_in_order() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    blocks = [block for block in blocks_of(PAGE) if block.language == "python"]
    assert len(blocks) > 12
    for block in blocks:
        file = f"<{PAGE.name}:{block.line}>"
        linecache.cache[file] = (len(block.text), None, block.text.splitlines(keepends=True), file)
        exec(compile(block.text, file, "exec", dont_inherit=True), names)


def test_every_public_name_is_on_the_page_or_on_that_of_the_language() -> None:
    absent = {name for name in qn.__all__ if f"qn.{name}" not in TEXT and f"qn.{name}" not in LANGUAGE}
    assert absent == set()


@pytest.mark.parametrize(
    "owner",
    [
        *(qn.Kernel, Launcher, BoundLaunch, qn.SpecializedKernel, qn.Device, qn.DeviceArray, qn.Stream, qn.Event),
        *(qn.Graph, qn.Profile, qn.DeviceInfo, qn.BackendInfo),
    ],
)
def test_every_public_attribute_is_on_the_page(owner: type) -> None:
    words = set(re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`[^`]+`", PROSE))))
    there = {name for name in dir(owner) if not name.startswith("_") and hasattr(owner, name)}
    assert there - words == INTERNAL.get(owner, set())


def test_every_error_is_on_the_page_with_the_builtin_that_it_is() -> None:
    rows = dict(re.findall(r"^\| `(\w+Error)` \| `(\w+)` \|", TEXT, re.MULTILINE))
    errors = {name for name in qn.errors.__all__ if name.endswith("Error")}
    assert set(rows) == errors - {"QuernelError"}
    for name, builtin in rows.items():
        assert builtin in [base.__name__ for base in getattr(qn.errors, name).__mro__], name


def test_every_variable_is_on_the_page() -> None:
    assert dict(re.findall(r"^\| `(QUERNEL_\w+)` \| (.*) \|$", TEXT, re.MULTILINE)) == settings.VARIABLES


def test_links_lead_somewhere() -> None:
    def anchors(text: str) -> set[str]:
        titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}

    for page, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", PROSE):
        target = PAGE.parent / page if page else PAGE
        assert target.is_file(), page
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), anchor
