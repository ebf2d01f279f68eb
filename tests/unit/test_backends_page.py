"""The reference for backend authors is right: every member is there, MUST is what has no default, examples run."""

from __future__ import annotations

import inspect
import linecache
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from quernel import errors
from quernel.capabilities import Capabilities, Limits, TargetInfo
from quernel.codegen.dialect import Dialect
from quernel.compiler import (
    AlignedVariant,
    ArtifactCompiler,
    ArtifactHeader,
    CFamilyCompiler,
    CompilationRecording,
    CompilationTarget,
    ForeignSource,
    HeaderParameter,
    KernelDefinition,
    LaunchFacts,
    LoweredText,
    PersistentTarget,
    SlotKind,
    Specialization,
)
from quernel.geometry import Geometry
from quernel.plugins.hooks import HookSpecifications
from quernel.runtime.exchange import MemoryExchange
from quernel.runtime.host_memory import HostMemoryOperations
from quernel.runtime.operations import Backend, DeviceInfo, DeviceOperations, Health, Memory, Unavailable
from quernel.testing.pages import blocks_of
from quernel_c._toolchain import find_toolchain

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "backends.md"
GUIDE = DOCS / "howto" / "write-a-backend.md"
TUTORIAL = DOCS / "tutorial" / "backend-c" / "index.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \| (MUST|SHOULD|MAY|call) \|", re.MULTILINE)
CLASSES = [
    *(Backend, ArtifactCompiler, CFamilyCompiler, CompilationTarget, PersistentTarget, DeviceOperations),
    HostMemoryOperations,
    MemoryExchange,
]


def section(title: str) -> str:
    found = re.search(rf"^#+ [^\n]*`{title}`[^\n]*\n(.*?)(?=^##|\Z)", PROSE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(title: str) -> dict[str, tuple[str, str]]:
    """The members of a class: how they are written on the page, and MUST, SHOULD or MAY."""
    return {
        written.partition("(")[0]: (written, word)
        for members, word in ROW.findall(section(title))
        for written in re.findall(r"`([^`]+)`", members)
    }


def own_annotations(owner: type) -> set[str]:
    return {name for name in inspect.get_annotations(owner) if not name.startswith("_")}


@pytest.mark.parametrize("owner", CLASSES)
def test_every_member_is_there_and_no_other(owner: type) -> None:
    members = {name for name in vars(owner) if not name.startswith("_")}
    members |= own_annotations(owner) | owner.__abstractmethods__
    assert set(rows(owner.__name__)) == members


@pytest.mark.parametrize("owner", CLASSES)
def test_must_is_what_has_no_default(owner: type) -> None:
    without = {name for name in own_annotations(owner) if not hasattr(owner, name)} | owner.__abstractmethods__
    assert {name for name, (_, word) in rows(owner.__name__).items() if word == "MUST"} == without


@pytest.mark.parametrize("owner", CLASSES)
def test_methods_are_written_with_their_parameters(owner: type) -> None:
    for name, (written, _) in rows(owner.__name__).items():
        member = getattr(owner, name, None)
        if callable(member) and not isinstance(member, type):
            code = member.__code__
            names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
            assert written == f"{name}({', '.join(names)})"
        else:
            assert written == name


def test_every_field_of_a_dialect_is_there_and_must_is_what_has_no_default() -> None:
    listed = rows("Dialect")
    fields = attrs.fields_dict(Dialect)
    assert set(listed) == set(fields)
    required = {name for name, field in fields.items() if field.default is attrs.NOTHING}
    assert {name for name, (_, word) in listed.items() if word == "MUST"} == required


@pytest.mark.parametrize(
    "owner",
    [
        *(AlignedVariant, ArtifactHeader, Capabilities, CompilationRecording, DeviceInfo, ForeignSource, Geometry),
        *(HeaderParameter, Health, KernelDefinition, LaunchFacts, Limits, LoweredText, Memory, SlotKind),
        *(Specialization, TargetInfo, Unavailable),
    ],
)
def test_every_member_of_what_a_backend_is_given_is_on_the_page(owner: type) -> None:
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", PROSE))))
    members = {name for name in dir(owner) if not name.startswith("_")}
    if issubclass(owner, SlotKind):
        members = set(SlotKind.__members__)
    told_elsewhere = {
        ArtifactHeader: {"from_bytes", "to_bytes"},
        CompilationRecording: {"absorb"},
        Geometry: {"is_empty", "num_points"},
        HeaderParameter: {"is_array"},
    }
    assert members - words == told_elsewhere.get(owner, set())


def test_errors_that_a_backend_raises_exist() -> None:
    raised = re.findall(r"^\| `(\w+Error)` \|", PROSE, re.MULTILINE)
    assert len(raised) == 5
    assert all(issubclass(getattr(errors, name), errors.QuernelError) for name in raised)


def test_both_lists_of_what_is_for_backends_have_all_that_pages_and_the_tutorial_import() -> None:
    texts = [block.text for page in (PAGE, GUIDE) for block in blocks_of(page) if block.language == "python"]
    texts += [path.read_text(encoding="utf-8") for path in (TUTORIAL.parent / "src").rglob("*.py")]
    imported = {
        name for text in texts for name in re.findall(r"^ *(?:from|import) (quernel\.[\w.]+)", text, re.MULTILINE)
    }
    imported |= set(re.findall(r"^From `(quernel\.[\w.]+)`", PROSE, re.MULTILINE))
    imported -= {"quernel.runtime.devices"}  # what the guide opens a backend with that is not installed
    compatibility = (DOCS / "reference" / "compatibility.md").read_text(encoding="utf-8")
    (there,) = re.findall(r"^Everything imported from .*? is for backends", PROSE, re.MULTILINE | re.DOTALL)
    (covered,) = re.findall(r"^\*\*What it covers\*\*.*?\n\n", compatibility, re.MULTILINE | re.DOTALL)
    for text in (there, covered):
        listed = re.findall(r"`(quernel\.[\w.]+)`", text)
        assert not [name for name in imported if not any(f"{name}.".startswith(f"{one}.") for one in listed)]
    assert len(imported) > 15


def test_every_hook_has_its_row() -> None:
    hooks = {name for name in vars(HookSpecifications) if name.startswith("quernel_")}
    shown = {
        name: set(re.findall(r"\w+", arguments))
        for name, arguments in re.findall(r"^\| `(quernel_\w+)\((\w+)\)`", PROSE, re.MULTILINE)
    }
    assert shown.keys() == hooks
    for name, arguments in shown.items():
        assert set(inspect.signature(getattr(HookSpecifications, name)).parameters) == {"self", *arguments}


@pytest.mark.parametrize("page", [PAGE, GUIDE])
def test_examples_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(find_toolchain(), "path"):
        pytest.skip("needs a C compiler, such as gcc")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    assert len(blocks) >= 4
    for block in blocks:
        file = f"<{page.name}:{block.line}>"
        linecache.cache[file] = (len(block.text), None, block.text.splitlines(keepends=True), file)
        exec(compile(block.text, file, "exec", dont_inherit=True), names)


@pytest.mark.parametrize("page", [PAGE, GUIDE, TUTORIAL])
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", prose):
        meant = page.parent / target if target else page
        assert meant.is_file(), target
        titles = re.findall(r"^#+ (.*)$", meant.read_text(encoding="utf-8"), re.MULTILINE)
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
