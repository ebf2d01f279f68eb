"""The tests of the kit as an interface: names that stay, cases that never leave early, helpers that tell."""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import quernel.testing
from quernel.testing.plugin import names_of_the_kit

KIT = Path(quernel.testing.__file__).parent
MODULES = sorted(KIT.glob("test_*.py"))

# Of each part the digest of its tests' names. Backends name them in `known_gaps`, so a name that changes is a change of
# the interface: it goes into CHANGELOG.md, and its part gets the new digest here.
DIGESTS = {
    "arithmetic": "510f22f7d296",
    "arrays": "aed540a3e04f",
    "atomics": "5f5311556bec",
    "cases": "2da1893cbc9e",
    "checked": "fb07607df9d3",
    "closing": "e1e78e401f0d",
    "compiling": "f91ba8cf70c6",
    "composites": "33fb47155eb5",
    "conversions": "b4bcb77a9fdc",
    "discovery": "14925238e159",
    "errors": "27078386d061",
    "identity": "ea609f3f0b7e",
    "launches": "151852763bfe",
    "loading": "0602791222d4",
    "math_functions": "e6152da4c001",
    "persistence": "12f035ea8738",
    "random_kernels": "7c859cc45626",
    "small_floats": "e88904a2872c",
    "statements": "56809369f940",
    "store": "a8a0ccb1db78",
    "streams": "cec330f1debb",
    "subgroups": "08d2c320cf21",
    "threads": "2c0b236bd380",
    "together": "9559087fafa0",
}


def cases_in(module: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a test, without those of the functions that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from statements_of(child)


def test_names_stay_as_they_are() -> None:
    found = {
        module.stem.removeprefix("test_"): hashlib.sha256(
            "\n".join(sorted(test.name for test in cases_in(module))).encode()
        ).hexdigest()[:12]
        for module in MODULES
    }
    assert found == DIGESTS


def test_every_name_is_of_one_test() -> None:
    assert len(names_of_the_kit()) == sum(1 for module in MODULES for _ in cases_in(module))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_no_test_leaves_early_or_skips_itself(module: Path) -> None:
    for test in cases_in(module):
        for node in statements_of(test):
            assert not isinstance(node, ast.Return), f"{test.name} returns before its end"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.skip", "pytest.importorskip"):
                assert "not_declared" in ast.unparse(node), f"{test.name} skips without a claim that says so"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_every_test_runs_on_the_device_and_asserts_something(module: Path) -> None:
    for test in cases_in(module):
        text = ast.unparse(test)
        fixtures = {argument.arg for argument in test.args.args}
        assert fixtures & {"quernel_device", "bench", "opened"}, f"{test.name} runs on no device"
        assert any(word in text for word in ("assert", "pytest.raises", "check_")), f"{test.name} asserts nothing"


HELPS = """
from quernel.testing.exact import assert_equal
import numpy as np

def test_differs():
    assert_equal(np.array([1, 2, 3]), [1, 2, 4])
"""


def test_assertions_in_helpers_show_their_values(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(HELPS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 of 3 differ: [('gives', 3, 'not', 4)]" in done.stdout
    assert "assert not [('gives', 3, 'not', 4)]" in done.stdout
