from quernel.testing.test_random_kernels import *  # noqa: F403
