"""Quernel: write a kernel once, compile and launch it on any device."""
