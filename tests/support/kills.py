"""How many kills the tests of killed processes make: few in every run, TEST_KILLS in the long one.

The variable has no name of this project's: jobs warn of a COMMITLAKE_ variable that they do not know.
"""

from __future__ import annotations

import os


def kill_count(short: int, *, share: int = 1) -> int:
    """Return the number of kills, or of rounds with kills, of a test.

    Args:
        short: the number where `TEST_KILLS` is not set.
        share: the test takes one in so many of `TEST_KILLS`, but never fewer than `short`.
    """
    asked = os.environ.get("TEST_KILLS")
    return max(short, int(asked) // share) if asked else short
