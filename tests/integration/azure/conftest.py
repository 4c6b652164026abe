"""A real server of Azure's blob protocol, shared by this folder's tests; each test has its own container."""

from __future__ import annotations

from tests.support.azure_fixtures import azure_environment, azure_server, copy

__all__ = ["azure_environment", "azure_server", "copy"]  # fixtures
