"""One real server of Azure's blob protocol for all tests of the folder, a container for each."""

from __future__ import annotations

from tests.support.azure_fixtures import azure_environment, azure_server, copy

__all__ = ["azure_environment", "azure_server", "copy"]  # fixtures
