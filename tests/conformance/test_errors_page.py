"""The page of refusals is right: each message is the one shown, each mended kernel runs, and no refusal is left out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

import quernel
from quernel.testing.pages import blocks_of
from quernel.testing.wrong_kernels import message_of, run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
SOURCES = Path(quernel.__file__).parent
WITHOUT_ENTRY: dict[str, str] = {
    "bodies.py: the types of the locals do not settle": "a guard: no kernel is known that gets there",
    "expressions.py: `await`": "a coroutine is refused before",
    "statements.py: `async for`": "a coroutine is refused before",
    "statements.py: `async with`": "a coroutine is refused before",
    "module.py: the calls in `…` nest too deep": "takes hundreds of functions; under unit test",
    "parameters.py: the type parameter `…` has no meaning in a kernel": "takes the syntax of Python 3.12",
    "source.py: … changed since it was imported: … is not what runs any more": "takes a file; under conformance test",
    "source.py: a lambda cannot be a kernel or device function": "the decorators refuse it before",
    "source.py: the source of … cannot be read from …": "takes a file that is gone; under unit test",
}
"""Refusals that the page does not show, and why."""


@attrs.frozen
class Entry:
    """A wrong kernel, its message, and the kernel mended."""

    title: str
    wrong: str
    message: str
    mended: str


def entries() -> list[Entry]:
    blocks = blocks_of(PAGE)[1:]
    found = []
    for wrong, message, mended in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        assert wrong.heading == message.heading == mended.heading
        assert (wrong.language, message.language, mended.language) == ("python", "text", "python")
        found.append(Entry(wrong.heading, wrong.text, message.text, mended.text))
    return found


ENTRIES = entries()


def test_every_entry_has_a_title_of_its_own() -> None:
    titles = [entry.title for entry in ENTRIES]
    assert len(titles) > 120
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.title)
def test_a_wrong_kernel_is_refused_with_the_message_on_the_page(quernel_device: Any, entry: Entry) -> None:
    assert message_of(entry.wrong, quernel_device) == entry.message


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.title)
def test_a_mended_kernel_runs(quernel_device: Any, entry: Entry) -> None:
    if "qn.subgroup" in entry.mended and not quernel_device.target_info.capabilities.subgroups:
        pytest.skip(f"needs subgroups, which {quernel_device.info.backend} does not declare")
    run(entry.mended, quernel_device)


def test_links_to_the_page_lead_to_an_entry() -> None:
    language = PAGE.with_name("language.md").read_text(encoding="utf-8")
    anchors = {re.sub(r"[^\w -]", "", entry.title.lower()).replace(" ", "-") for entry in ENTRIES}
    links = set(re.findall(r"\(errors\.md#(.*?)\)", language))
    assert len(links) >= 5
    assert links <= anchors


# --- nothing is left out ----------------------------------------------------------------------------------------------


def refusals() -> dict[str, re.Pattern[str]]:
    """Every refusal in the sources of the frontend: its place, and a pattern of its message."""
    found = {}
    for path in [*sorted((SOURCES / "lang").glob("*.py")), SOURCES / "ir" / "uniformity.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in messages(node):
                found[f"{path.name}: {shown(text)}"] = pattern(text)
    return found


def messages(node: ast.AST) -> list[ast.expr]:
    """The messages that a call makes, or that a table of refusals holds."""
    match node:
        case ast.Call(func=ast.Attribute(attr="syntax" | "type", value=owner), args=[_, what, *_]) if (
            "refuse" in ast.unparse(owner)
        ):
            return [what] if isinstance(what, ast.Constant | ast.JoinedStr) else []
        case ast.Call(func=ast.Name(id="KernelSyntaxError" | "KernelTypeError"), args=[what, *_]):
            return [what] if isinstance(what, ast.Constant | ast.JoinedStr) else []
        case ast.AnnAssign(target=ast.Name(id="_REFUSED" | "_OWN_MESSAGES"), value=ast.Dict(values=values)):
            return [value.elts[0] for value in values if isinstance(value, ast.Tuple)]
        case _:
            return []


def shown(text: ast.expr) -> str:
    match text:
        case ast.Constant(value=str() as plain):
            return plain
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts)
        case _:
            return ast.unparse(text)


def pattern(text: ast.expr) -> re.Pattern[str]:
    return re.compile(".+".join(re.escape(part) for part in shown(text).split("…")))


def test_every_refusal_has_an_entry_or_is_known_to_have_none() -> None:
    page = "\n".join(entry.message for entry in ENTRIES)
    absent = {name for name, message in refusals().items() if not message.search(page)}
    assert len(refusals()) > 140
    assert absent == set(WITHOUT_ENTRY)
