"""The documentation builds without a warning, is whole, and asks nothing of other hosts."""

from __future__ import annotations

import enum
import html
import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock

import quernel as qn
import quernel.compiler
import quernel.ir.nodes
import quernel.ir.passes

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    page.relative_to(DOCS)
    for page in DOCS.rglob("*.md")
    if page.name != "README.md" and not {"src", "tests"} & set(page.relative_to(DOCS).parts)
)
ABSENT = [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(ABSENT), reason=f"{', '.join(ABSENT)} not installed: pip install --group docs"),
    pytest.mark.slow,
]


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(DOCS), str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})


class Links(HTMLParser):
    """What a page links to and what it loads, its anchors, and the levels of its headings."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.levels: list[int] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.targets.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given["href"])
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all processes that run these tests."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    target, whole = folder / "site", folder / "site.whole"
    with FileLock(folder / "site.lock"):
        if not whole.exists():
            built = build(DOCS, target)
            assert built.returncode == 0, built.stderr
            whole.touch()
    return target


@pytest.fixture(scope="module")
def links(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in sorted(site.rglob("*.html"))}


def test_every_page_is_in_the_site(site: Path) -> None:
    assert [page for page in PAGES if not (site / page).with_suffix(".html").is_file()] == []


def test_every_link_leads_to_a_page_and_an_anchor_that_are_there(site: Path, links: dict[Path, Links]) -> None:
    broken = []
    for page, found in links.items():
        for target in found.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = links[there].anchors if there in links else {unquote(parts.fragment)}
            if not there.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append((page.name, target))
    assert broken == []


def test_nothing_is_loaded_from_another_host(site: Path, links: dict[Path, Links]) -> None:
    foreign = {address for found in links.values() for address in found.loaded if urlsplit(address).netloc}
    styles = {
        found for style in site.rglob("*.css") for found in re.findall(r"url\(([^)]*//[^)]*)\)", style.read_text())
    }
    assert foreign == set()
    assert {style for style in styles if "data:" not in style} == set()


def test_headings_go_down_one_level_at_a_time(site: Path, links: dict[Path, Links]) -> None:
    for page in PAGES:
        levels = links[(site / page).with_suffix(".html")].levels
        assert levels.count(1) == 1, page
        assert all(below <= above + 1 for above, below in pairwise(levels)), page


def test_code_is_highlighted_and_tables_are_tables(site: Path) -> None:
    page = (site / "tutorial" / "first-steps.html").read_text(encoding="utf-8")
    assert '<span class="nd">@qn</span>' in page
    assert "<table" in (site / "reference" / "api.html").read_text(encoding="utf-8")
    for made in site.rglob("*.html"):
        assert not re.search(r"<p>\s*\|", made.read_text(encoding="utf-8")), f"{made.name} shows a table as text"


@pytest.mark.parametrize(
    ("page", "prefix", "names"),
    [
        ("python.html", "quernel", qn.__all__),
        ("python-compiler.html", "quernel.compiler", quernel.compiler.__all__),
        ("python.html", "quernel.errors", qn.errors.__all__),
        ("python-ir.html", "quernel.ir.nodes", quernel.ir.nodes.__all__),
        ("python-ir.html", "quernel.ir.passes", quernel.ir.passes.__all__),
    ],
)
def test_every_public_name_is_on_its_page(
    site: Path, links: dict[Path, Links], page: str, prefix: str, names: list[str]
) -> None:
    elsewhere = {"errors", "no_compiling", "CompilationError", "caret_lines"}
    elsewhere.add("bool")  # without an anchor, as all of Python's own would lead to it
    anchors = links[site / "reference" / page].anchors
    assert [name for name in names if f"{prefix}.{name}" not in anchors and name not in elsewhere] == []


def shown(page: Path) -> str:
    """The text of a page's article, as a reader sees it."""
    article = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    return html.unescape(re.sub(r"<[^>]+>", "", article))


def test_signatures_are_for_readers(site: Path) -> None:
    for name in ("python", "python-compiler", "python-ir"):
        text = shown(site / "reference" / f"{name}.html")
        assert not re.search(r"~\w|<nowhere>|<object object|<class '|Const \| Local[^\n]*\)", text), name


def test_every_member_of_an_enumeration_of_the_ir_is_named(site: Path) -> None:
    text = shown(site / "reference" / "python-ir.html")
    enums = [kind for kind in vars(quernel.ir.nodes).values() if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    assert len(enums) > 8
    for kind in enums:
        assert f"Members: {', '.join(member.name for member in kind)}." in text, kind.__name__


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[nothing](nothing.md)", "nothing.md"),
        ("[no heading](#nothing)", "nothing"),
        ("```{eval-rst}\n.. autofunction:: quernel.nothing\n```", "nothing"),
    ],
)
def test_a_broken_page_does_not_build(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "index.md").write_text(f"# Page\n\n{text}\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert complaint in built.stderr
