"""How many examples a property gets: few in every run, many in `poe deep` (HYPOTHESIS_PROFILE=deep)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ALLOWED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("quick", max_examples=200, deadline=None, suppress_health_check=_ALLOWED, print_blob=True)
settings.register_profile("deep", max_examples=20_000, deadline=None, suppress_health_check=_ALLOWED, print_blob=True)


def load() -> None:
    """Choose the profile that the environment names."""
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
