"""IR to LLVM IR text, in layers: text, values, operators, bodies, and the loops that run the threads."""
