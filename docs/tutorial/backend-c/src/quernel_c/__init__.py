"""The backend `c` of Quernel: kernels as C, compiled by the system's C compiler."""
