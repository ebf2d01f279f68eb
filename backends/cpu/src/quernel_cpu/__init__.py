"""The CPU backend of Quernel."""
