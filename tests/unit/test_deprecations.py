from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

from quernel.errors import QuernelDeprecationWarning, warn_deprecated

CORE = """
from quernel.errors import warn_deprecated

def old():
    inner()

def inner():
    warn_deprecated("k.old() is called k.new()", removed_in="0.4", fix="write k.new()")
"""


def core() -> dict[str, Any]:
    """A module of the core with something deprecated in it."""
    names: dict[str, Any] = {"__name__": "quernel.somewhere"}
    exec(compile(CORE, "somewhere.py", "exec"), names)
    return names


def test_a_deprecation_says_what_goes_when_and_what_to_write() -> None:
    with pytest.warns(QuernelDeprecationWarning) as caught:
        core()["old"]()
    (warning,) = caught
    assert str(warning.message) == "k.old() is called k.new(), and goes in 0.4\n  fix: write k.new()"
    assert isinstance(warning.message, DeprecationWarning)


@pytest.mark.parametrize("caller", ["__main__", "quernel_cuda.device", "quernelish"])
def test_a_deprecation_stands_at_the_line_that_uses_it(caller: str) -> None:
    names = {"__name__": caller, "old": core()["old"]}
    with pytest.warns(QuernelDeprecationWarning) as caught:
        exec(compile("\n\nold()\n", "user.py", "exec"), names)
    assert (caught[0].filename, caught[0].lineno) == ("user.py", 3)


def test_deprecations_can_be_made_errors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", QuernelDeprecationWarning)
        with pytest.raises(QuernelDeprecationWarning, match=r"goes in 0\.4") as raised:
            warn_deprecated("it is old", removed_in="0.4", fix="use the new one")
    assert pickle.loads(pickle.dumps(raised.value)).fix == "use the new one"
