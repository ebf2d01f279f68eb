from quernel.testing.test_compiling import *  # noqa: F403
