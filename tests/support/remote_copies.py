"""Copies of stores in an object store without a server: objects are files, read through a non-local filesystem."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from commitlake.connectors.shipping.ship_target import ShipTarget
from commitlake.connectors.storage import filesystem as filesystems
from commitlake.connectors.storage.azure_storage import AzureStorage
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceStore
from tests.support.ship_targets import MemoryTarget

COPY = "abfss://logs@account.dfs.core.windows.net/copy"


def serve_copies(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `COPY` refer to a folder within this process.

    Args:
        folder: the folder; it receives the objects.
        monkeypatch: restores the real object stores.
    """
    (folder / "copy").mkdir(parents=True, exist_ok=True)
    container = folder / COPY.split("/")[2]  # paths begin with the bucket, as in the filesystems of object stores
    if not container.is_symlink():
        container.symlink_to(folder)
    filesystem = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "open_filesystem", lambda uri: (filesystem, uri.partition("://")[2]))
    monkeypatch.setattr(AzureStorage, "check_readable", lambda _: None)


def publish(target: MemoryTarget, folder: Path) -> None:
    """Replace the content of the folder by the objects of a target."""
    root = folder / "copy"
    for path in [each for each in root.rglob("*") if each.is_file()]:
        path.unlink()
    for name, data in target.objects.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def ship_copy(store: Path, folder: Path, settings: ShipSettings | None = None) -> None:
    """Ship a store including its newest record, and serve the copy as `COPY`."""
    target = MemoryTarget()
    ship_rounds(store, target, settings)
    publish(target, folder)


def ship_rounds(store: Path, target: ShipTarget, settings: ShipSettings | None = None) -> ShipAgent:
    """Ship a store including its newest record, as if it had been unchanged for seconds, and return the agent."""
    seconds = count()
    settings = settings or ShipSettings("broker-a")
    agent = ShipAgent(SourceStore(str(store)), target, settings, clock=lambda: float(next(seconds)))
    agent.ship_round()
    return agent
