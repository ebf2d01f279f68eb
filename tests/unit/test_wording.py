from __future__ import annotations

import pytest

from quernel.wording import counted, plural


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "problem", "0 problems"),
        (1, "problem", "1 problem"),
        (2, "axis", "2 axes"),
        (1, "axis", "1 axis"),
        (3, "index", "3 indices"),
        (2, "positional argument", "2 positional arguments"),
    ],
)
def test_noun_stands_in_the_plural_unless_there_is_one(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_verb_follows_its_number() -> None:
    assert [plural(number, "was") for number in (0, 1, 2)] == ["were", "was", "were"]
