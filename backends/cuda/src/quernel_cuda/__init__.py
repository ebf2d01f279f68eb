"""The CUDA backend of Quernel."""
