"""Failures: each thread that is told of one raises an exception of its own; and that of what must not be compiled."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from quernel.errors import LaunchError

if TYPE_CHECKING:
    from quernel.capabilities import TargetInfo
    from quernel.compiler.inflight import Job
    from quernel.store import Environment

__all__ = ["not_compiled", "own_copy"]


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


def not_compiled(job: Job, target_info: TargetInfo, environment: Environment | None, persists: bool) -> LaunchError:
    """The error of a kernel that would have to be compiled where nothing may be."""
    name, target = job.name, f"{target_info.backend} {target_info.name}"
    if environment is None:
        why = "nothing is kept, as QUERNEL_NO_CACHE is set"
    elif not persists:
        why = f"the store in {environment.path} cannot be used, or this device keeps nothing"
    elif job.why_missed == ("new",):
        why = f"the store in {environment.path} has no kernel of that name"
    elif job.is_fresh:
        why = f"the device refused what the store in {environment.path} has"
    else:
        parts = ", ".join(job.why_missed) or "part that this target does not tell"
        why = f"the store in {environment.path} has it with a different: {parts}"
    return LaunchError(
        f"kernel {name} is not compiled for {target}, and must not be within no_compiling(): {why}",
        fix=f"compile it before, with {name}.warm(...), device.compile([...]) or a launch outside no_compiling()",
    )
