from quernel.testing.test_composites import *  # noqa: F403
