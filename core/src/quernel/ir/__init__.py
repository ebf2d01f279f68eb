"""The intermediate representation: nodes, text form, verifier and passes."""
