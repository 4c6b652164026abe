"""A server of Google Cloud Storage's protocol, shared by this folder's tests; each test has its own bucket."""

from __future__ import annotations

from tests.support.gcs_fixtures import copy, gcs_environment, gcs_server

__all__ = ["copy", "gcs_environment", "gcs_server"]  # fixtures
