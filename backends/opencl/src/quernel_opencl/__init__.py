"""The OpenCL backend of Quernel."""
