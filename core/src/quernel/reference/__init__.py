"""The reference backend: an interpreter that runs a kernel thread by thread, exactly, under the user's own lines.

Every other backend is tested against it. Tracebacks and debuggers see the kernel's file, lines and locals.
"""
