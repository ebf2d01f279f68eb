"""How a kernel becomes C, and how its launch runs: one loop over all threads, written behind the kernel."""

from __future__ import annotations

from typing import Final

from quernel.codegen.gnu_c import gnu_c
from quernel.ir.nodes import IndexKind

__all__ = ["DIALECT"]

_PLACES: Final = "static _Thread_local int64_t qn_block[3], qn_thread[3];"

_LOOP: Final = """
void {entry}(const unsigned char *restrict cells, const int64_t *grid)
{{
    for (qn_block[2] = 0; qn_block[2] < grid[2]; qn_block[2]++)
    for (qn_block[1] = 0; qn_block[1] < grid[1]; qn_block[1]++)
    for (qn_block[0] = 0; qn_block[0] < grid[0]; qn_block[0]++)
    for (qn_thread[2] = 0; qn_thread[2] < {z}; qn_thread[2]++)
    for (qn_thread[1] = 0; qn_thread[1] < {y}; qn_thread[1]++)
    for (qn_thread[0] = 0; qn_thread[0] < {x}; qn_thread[0]++)
        qn_body({arguments});
}}
"""

DIALECT: Final = gnu_c(
    preamble=_PLACES,
    kernel="static void qn_body({parameters})",
    loop=_LOOP,
    argument="*({type}*)(cells + 8 * {number})",
    indices={IndexKind.LOCAL_ID: "qn_thread[{axis}]", IndexKind.BLOCK_ID: "qn_block[{axis}]"},
    shared="static _Thread_local {type} {name}[{count}] __attribute__((aligned(16)))",
)
