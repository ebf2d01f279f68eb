"""Passes: each takes a module and gives a module that means the same."""
