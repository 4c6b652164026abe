"""One server of Google Cloud Storage's protocol for all tests of the folder, a bucket for each."""

from __future__ import annotations

from tests.support.gcs_fixtures import copy, gcs_environment, gcs_server

__all__ = ["copy", "gcs_environment", "gcs_server"]  # fixtures
