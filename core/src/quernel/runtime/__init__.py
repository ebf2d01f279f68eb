"""Devices, arrays, launchers and the operations that a backend contributes."""
