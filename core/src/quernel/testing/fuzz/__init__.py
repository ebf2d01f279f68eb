"""Random kernels, well typed by construction, compared between the interpreter and a backend.

*Exact* kernels use what every exact backend computes alike and are compared bit for bit; in *inexact* ones a
mathematical function feeds a store directly and keeps its stated bound. `python -m quernel.testing.fuzz --examples N`
runs many of both; `python -m quernel.testing.fuzz --help` lists its options.
"""

from __future__ import annotations

__all__: list[str] = []
