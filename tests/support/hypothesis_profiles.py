"""Numbers of examples for property tests: few in every run, more before a release, many in `poe deep`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ALLOWED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
for _name, _count in (("quick", 20), ("long", 200), ("deep", 20_000)):
    settings.register_profile(
        _name, max_examples=_count, deadline=None, suppress_health_check=_ALLOWED, print_blob=True
    )


def load() -> None:
    """Load the profile that an environment variable names."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
