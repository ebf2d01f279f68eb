"""What a user may set for a kernel: checks, fast mathematics, debugging, contraction."""

from __future__ import annotations

import attrs

__all__ = ["DEFAULT_OPTIONS", "KernelOptions"]


@attrs.frozen
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
