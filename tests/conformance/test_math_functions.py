from quernel.testing.test_math_functions import *  # noqa: F403
