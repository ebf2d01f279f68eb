"""A failure that several threads are told: each raises an exception of its own."""

from __future__ import annotations

import copy

__all__ = ["own_copy"]


def own_copy(failure: BaseException) -> BaseException:
    """A copy of a failure for one thread to raise, with its cause, notes and traceback so far.

    Raising an exception writes to it, and whoever catches it may add notes or a place. One that cannot be copied is
    given as it is.
    """
    try:
        made = copy.copy(failure)
    except Exception:  # a stranger's exception, whose constructor wants other arguments
        return failure
    if type(made) is not type(failure):
        return failure
    made.__cause__, made.__context__ = failure.__cause__, failure.__context__
    made.__suppress_context__ = failure.__suppress_context__
    notes = getattr(failure, "__notes__", None)
    if notes is not None:
        made.__notes__ = [*notes]
    return made.with_traceback(failure.__traceback__)
