"""What a user may set for a kernel: checks, fast mathematics, debugging, contraction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from quernel.errors import KernelTypeError
from quernel.values import frozen

__all__ = ["DEFAULT_OPTIONS", "KernelOptions", "refuse_unknown_settings", "switch"]


@frozen
class KernelOptions:
    """Settings that change the code of a kernel, and so its identity.

    Attributes:
        checked: every index is checked against its array; a violation raises at the kernel's line.
        fast_math: reassociation, reciprocals, approximate functions, flush to zero; never "no NaN".
        debug: line tables in the compiled code.
        contract: `a*b ± c` within one expression becomes one fused multiply-add.
    """

    checked: bool = False
    fast_math: bool = False
    debug: bool = False
    contract: bool = True


DEFAULT_OPTIONS = KernelOptions()


def switch(name: str, given: object) -> bool:
    """The value of a setting that is on or off.

    Raises:
        KernelTypeError: it is neither `True` nor `False`.
    """
    if isinstance(given, bool):
        return given
    if type(given).__module__ == "numpy" and type(given).__name__ in ("bool", "bool_"):
        return bool(given)
    raise KernelTypeError(
        f"the setting {name!r} is on or off, and got {given!r}", fix=f"write {name}=True or {name}=False"
    )


def refuse_unknown_settings(owner: str, unknown: Iterable[str], known: tuple[str, ...]) -> NoReturn:
    """Raises for the first setting that `owner` does not have, with the one that was meant.

    Raises:
        KernelTypeError: always.
    """
    from difflib import get_close_matches

    name = next(iter(unknown))
    meant = get_close_matches(name, known, 1)
    fix = f"did you mean {meant[0]!r}? " if meant else ""
    raise KernelTypeError(f"{owner} has no setting {name!r}", fix=f"{fix}its settings are {', '.join(known)}")
