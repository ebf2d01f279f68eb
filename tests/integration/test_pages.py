"""The examples of the tutorials and explanations: each page runs in order, as it stands."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import quernel as qn
from quernel.testing.pages import blocks_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    DOCS / page
    for page in (
        "index.md",
        "tutorial/first-steps.md",
        "explanation/halves.md",
        "howto/reductions-on-the-cpu.md",
        "explanation/over.md",
        "explanation/comparison.md",
        "reference/compatibility.md",
    )
]


def run(page: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        if block.language == "python":
            file = f"<{page.name}:{block.line}>"
            linecache.cache[file] = (len(block.text), None, block.text.splitlines(keepends=True), file)
            exec(compile(block.text, file, "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_run_in_order(page: Path) -> None:
    assert any("assert " in block.text for block in blocks_of(page))
    run(page)


def test_the_tutorial_shows_the_message_that_comes() -> None:
    page = DOCS / "tutorial" / "first-steps.md"
    (shown,) = [block.text for block in blocks_of(page) if block.language == "text"]
    message = re.sub(r"<first-steps\.md:\d+>", "first-steps.md", run(page)["message"])
    assert message == shown.rstrip("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_of_quernel_that_a_page_mentions_is_there(page: Path) -> None:
    for name in re.findall(r"\bqn\.([A-Za-z_]\w*(?:\.[a-z_]\w*)*)", page.read_text(encoding="utf-8")):
        value: Any = qn
        for part in name.split("."):
            assert hasattr(value, part), name
            value = getattr(value, part)


def test_the_comparison_gives_no_time_that_was_not_measured() -> None:
    compared = (DOCS / "explanation" / "comparison.md").read_text(encoding="utf-8")
    measured = (DOCS / "explanation" / "performance.md").read_text(encoding="utf-8")
    paragraphs = [text for text in compared.split("\n\n") if "](performance.md#" in text]
    figures = [figure for text in paragraphs for figure in re.findall(r"\d+\.\d+|\d \d{3}\b", text)]
    assert len(figures) > 15
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]\d)", measured)] == []
