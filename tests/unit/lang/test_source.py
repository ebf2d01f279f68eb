"""Finding the source of a function, and proving that it is the source of what runs."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lang.kernels import kernel_of, namespace, refusal

from quernel.errors import KernelSyntaxError
from quernel.lang.source import read_source


def imported(path: Path, text: str) -> types.ModuleType:
    """The module whose file is written with `text`."""
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def returned(function: types.FunctionType) -> str:
    """What the `return` of the function's source says."""
    return ast.unparse(read_source(function).definition.body[-1])


MODULE = """
import contextlib

def keep(*args):
    return lambda function: function

@keep(
    1,
    2,
)
@keep()
def several_lines(x):
    return x + 1

def make(n):
    @keep(n)
    def kernel(x):
        return x + n
    return kernel

def make_other(n):
    def kernel(x):
        return x - n
    return kernel

class Group:
    @staticmethod
    def kernel(x):
        return x * 2

if True:
    def twice(x):
        return 1
def twice(x):
    return 2
"""


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        (lambda module: module.several_lines, "return x + 1"),
        (lambda module: module.make(1), "return x + n"),
        (lambda module: module.make_other(1), "return x - n"),
        (lambda module: module.Group.kernel, "return x * 2"),
        (lambda module: module.twice, "return 2"),
    ],
)
def test_function_of_a_module_is_found_by_its_qualified_name(find: Any, expected: str, tmp_path: Path) -> None:
    assert returned(find(imported(tmp_path / "found.py", MODULE))) == expected


def test_functions_of_one_qualified_name_are_told_apart_by_their_code(tmp_path: Path) -> None:
    text = """
    def make(kind):
        if kind:
            def kernel(x):
                return x + 1
        else:
            def kernel(x):
                return x + 2
        return kernel
    """
    module = imported(tmp_path / "same.py", text)

    assert [returned(module.make(kind)) for kind in (True, False)] == ["return x + 1", "return x + 2"]


def test_equal_code_under_one_name_is_told_apart_by_its_line(tmp_path: Path) -> None:
    text = """
    def make(kind):
        if kind:
            def kernel(x):
                return x + 1
        else:
            def kernel(x):
                return x + 1
        return kernel
    """
    module = imported(tmp_path / "equal.py", text)

    assert [read_source(module.make(kind)).definition.lineno for kind in (True, False)] == [4, 7]


def test_file_that_moved_its_lines_still_matches(tmp_path: Path) -> None:
    path = tmp_path / "moved.py"
    module = imported(path, "def kernel(x):\n    'Old.'\n    return x + 1\n")
    path.write_text("# a comment\n\n\ndef other():\n    pass\n\ndef kernel(x):\n    'New.'\n    return x + 1\n")

    source = read_source(module.kernel)

    assert source.definition.lineno == 7
    assert source.storable


@pytest.mark.parametrize(
    "edited",
    [
        "def kernel(x):\n    return x + 2\n",
        "def kernel(x):\n    return x + 1.0\n",
        "def kernel(y):\n    return y + 1\n",
        "def renamed(x):\n    return x + 1\n",
        "def kernel(x:\n",
        "x = 1\n",
    ],
)
def test_file_that_was_edited_after_the_import_is_refused(edited: str, tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    module = imported(path, "def kernel(x):\n    return x + 1\n")
    path.write_text(edited)

    with pytest.raises(KernelSyntaxError, match=r"edited\.py changed since it was imported") as caught:
        read_source(module.kernel)

    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.line) == (str(path), 1)
    assert caught.value.fix == "restart Python, or load the module again: importlib.reload(module)"


def test_constants_of_other_types_are_a_change(tmp_path: Path) -> None:
    path = tmp_path / "typed.py"
    module = imported(path, "def kernel(x):\n    return x + 1\n")
    path.write_text("def kernel(x):\n    return x + True\n")

    with pytest.raises(KernelSyntaxError, match="changed since it was imported"):
        read_source(module.kernel)


def test_future_annotations_and_non_ascii_names_are_found(tmp_path: Path) -> None:
    text = "from __future__ import annotations\ndef kernel(č: ϕ, x: 'y'):\n    return č + 1\n"

    assert returned(imported(tmp_path / "čeština.py", text).kernel) == "return č + 1"


def test_function_executed_from_text_is_found_through_linecache() -> None:
    assert returned(kernel_of("def kernel(x):\n    return x + 1\n")) == "return x + 1"


def test_notebook_cell_that_awaits_at_its_top_level_is_found() -> None:
    file = "<cell 1>"
    text = "import asyncio\nawait asyncio.sleep(0)\ndef kernel(x):\n    return x + 1\n"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code = compile(text, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    inner = next(constant for constant in code.co_consts if isinstance(constant, types.CodeType))

    assert returned(types.FunctionType(inner, {})) == "return x + 1"


def test_text_that_nobody_kept_is_refused_with_what_to_do() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def kernel(x):\n    return x\n", "<nowhere to be found>", "exec"), scope)

    with pytest.raises(
        KernelSyntaxError, match="the source of kernel cannot be read from <nowhere to be found>"
    ) as caught:
        read_source(scope["kernel"])

    assert caught.value.fix is not None
    assert "linecache.cache" in caught.value.fix


def test_lambda_is_refused() -> None:
    with pytest.raises(KernelSyntaxError, match="a lambda cannot be a kernel or device function"):
        read_source(namespace("f = lambda x: x\n")["f"])


def test_coroutine_is_refused() -> None:
    with pytest.raises(KernelSyntaxError, match="a coroutine cannot be a kernel or device function"):
        read_source(kernel_of("async def kernel(x):\n    pass\n"))


def test_yield_is_refused_at_its_own_line() -> None:
    error = refusal("def kernel(x):\n    yield x\n")

    assert error.where is not None
    assert (error.where.line, error.what) == (2, "`yield` has no meaning in a kernel")


PROGRAM = """
from quernel.lang.source import read_source
def kernel(x):
    return x + 1
source = read_source(kernel)
print(source.definition.name, source.line(4).strip())
"""


@pytest.mark.parametrize(
    "options", [("-c",), ("-Wignore", "-c"), ("-W", "ignore", "-X", "dev", "-c"), ("-Bc",), ("-Xutf8", "-uc")]
)
def test_function_of_a_program_on_the_command_line_is_found(options: tuple[str, ...]) -> None:
    command = [sys.executable, *options, PROGRAM, "-c", "other"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "kernel return x + 1\n"


def test_program_on_the_command_line_may_follow_its_option_at_once() -> None:
    run = subprocess.run([sys.executable, "-c" + PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout == "kernel return x + 1\n"


def test_text_executed_by_a_program_on_the_command_line_is_not_taken_for_the_program() -> None:
    program = """
from quernel.lang.source import read_source
from quernel.errors import KernelSyntaxError
def kernel(x):
    return x + 1
scope = {}
exec("def kernel(x):\\n    return x + 2\\n", scope)
try:
    read_source(scope["kernel"])
except KernelSyntaxError as error:
    print("refused:", error.what)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("refused: ")


def test_line_after_a_form_feed_is_shown_with_its_caret() -> None:
    text = "def other(x):\n    pass\n\f\ndef kernel(x):\n    x[0] = missing\n"
    error = refusal(text)
    assert "    x[0] = missing\n           ^^^^^^^" in str(error)


def test_traced_function_still_matches(tmp_path: Path) -> None:
    module = imported(
        tmp_path / "traced.py", "def kernel(x):\n    for k in range(100):\n        x += k\n    return x\n"
    )
    for _ in range(200):
        module.kernel(1)

    assert returned(module.kernel) == "return x"


REWRITTEN = """
def kernel(x):
    return x + 1

def asserting(x):
    assert x > 0
    return x + 1

def test_both():
    import sys
    from quernel.lang.source import read_source
    assert type(__loader__).__module__ == "_pytest.assertion.rewrite"
    assert read_source(kernel).storable
    source = read_source(asserting)
    assert not source.storable
    assert source.definition.name == "asserting"
"""


def test_function_whose_asserts_pytest_rewrote_is_found_but_not_to_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "test_rewritten.py"
    path.write_text(REWRITTEN)

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert "1 passed" in run.stdout, run.stdout


def test_columns_are_in_characters(tmp_path: Path) -> None:
    module = imported(tmp_path / "columns.py", "def kernel(č):\n    return 'ϕϕ', č\n")
    source = read_source(module.kernel)
    statement = source.definition.body[0]
    assert isinstance(statement, ast.Return)
    assert isinstance(statement.value, ast.Tuple)

    location = source.location(statement.value.elts[1])

    assert (location.line, location.column, location.end_column) == (2, 17, 18)
    assert source.line(2) == "    return 'ϕϕ', č\n"
