"""Payloads that are files, and files as someone with an editor leaves them."""

from __future__ import annotations

from pathlib import Path

from quernel.store import Environment

LARGE = b"\x90" * (2**20 + 17)


def value_file(env: Environment) -> Path:
    (found,) = Path(env.store_path).glob("*/*/*.val")
    return found
