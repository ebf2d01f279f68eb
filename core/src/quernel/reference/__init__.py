"""The reference backend: an interpreter that runs a kernel thread by thread, exactly, under the user's own lines.

It is what every other backend is tested against, and where `breakpoint()`-style debugging works: tracebacks, debuggers
and coverage see the kernel's file and lines.
"""
