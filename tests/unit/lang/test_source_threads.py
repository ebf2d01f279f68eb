"""Kernels of one file are expanded by many threads at once."""

from __future__ import annotations

import ast
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quernel.lang import source


@pytest.mark.usefixtures("fast_switching")
def test_a_file_is_parsed_once_by_threads_that_want_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse

    def counted(text: str, file: str) -> Any:
        parsed.append(file)
        return parse(text, file)

    monkeypatch.setattr(ast, "parse", counted)
    text = "\n".join(f"def f{number}(x):\n    return [x + {number}, (x, {{1: x}})]" for number in range(300))
    start = threading.Barrier(8)

    def compile_it(_: int) -> Any:
        start.wait()
        return source._compiled(text, "<threads>", 0)[0]

    with ThreadPoolExecutor(8) as threads:
        trees = list(threads.map(compile_it, range(8)))
    assert len({id(tree) for tree in trees}) == 1
    assert parsed == ["<threads>"]


def test_a_miscount_of_python_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, miscounts = ast.parse, [SystemError("AST constructor recursion depth mismatch (before=51, after=44)")] * 3

    def miscounting(text: str, file: str) -> Any:
        if miscounts:
            raise miscounts.pop()
        return parse(text, file)

    monkeypatch.setattr(ast, "parse", miscounting)
    assert source._parsed("x = 1", "<miscount>").body
    monkeypatch.setattr(ast, "parse", lambda *_: (_ for _ in ()).throw(SystemError("always")))
    with pytest.raises(SystemError, match="always"):
        source._parsed("x = 1", "<miscount>")
