from __future__ import annotations

import re

from quernel.store import StoreNames


def test_names_have_kind_namespace_and_key(keys, names) -> None:
    space = names.namespace
    assert re.fullmatch("[0-9a-f]{64}", space)
    assert names.kernel(keys.kernel("a")) == f"k/{space}/{keys.kernel('a').digest}"
    assert names.ir(keys.ir("a")) == f"i/{space}/{keys.ir('a').digest}"
    assert names.source(keys.source("a")) == f"s/{space}/{keys.source('a').digest}"
    assert names.payload("ab" * 32) == "b/" + "ab" * 32
    assert re.fullmatch("n/[0-9a-f]{64}", names.parts("saxpy"))


def test_namespace_differs_with_backend_format_and_fingerprint() -> None:
    spaces = {
        StoreNames(*fields).namespace
        for fields in [
            ("cpu", 1, "a"),
            ("cpu", "1", "a"),
            ("cpu", 2, "a"),
            ("cuda", 1, "a"),
            ("cpu", 1, "b"),
            ("cp", 1, "ua"),
            ("cpu1", 1, "a"),
        ]
    }
    assert len(spaces) == 7


def test_namespace_is_the_same_in_every_process(names) -> None:
    assert StoreNames("cpu", 1, "f").namespace.startswith("de4666eae9eafee7")
