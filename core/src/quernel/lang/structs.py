"""Structs: classes called in a kernel, and struct parameters.

A struct value is its fields' values; it has no place of its own. It is made by calling a frozen attrs class
(`Particle(x, y)`), by loading an element of an array of structs, or it is a struct parameter.

**How a struct argument is flattened.** A parameter `p` that takes a struct (an instance of a frozen attrs class, or a
NumPy structured scalar) is no parameter of the compiled kernel. Each of its fields is one, in the order of the class,
under the name `p.field`; a field that is a struct itself is flattened in turn, to `p.field.inner`. So the types handed
to `expand` name `p.x`, `p.y`, …, each an `ArrayType` or a `ScalarType`, and never `p`; and `Const` fields stand among
the constants under the same names. A scalar field annotated `int` or `float` is weak, as such a parameter is; one
annotated with a type of the language has that type. A vector, as a field or as a parameter itself, is flattened to its
components, `p.velocity.0`, `p.velocity.1`, ….
"""

from __future__ import annotations
