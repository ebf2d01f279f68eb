"""IR to C-family text: what OpenCL C, CUDA C++ and their like have in common, driven by a `Dialect`.

A backend brings a `dialect.Dialect` (tables of types, qualifiers and builtins) and calls `generate.generate`. The text
that comes back is readable, under the user's names, the same for the same content in every process, and ASCII. It goes
with a map from its lines to the user's, so that a toolchain's complaint can be shown where it belongs.

A language without launches of its own, such as C, gives `Dialect.loop`, a text that calls the kernel thread by thread.

The modules are imported by their own names, since a warm start needs `pointers` alone.
"""
