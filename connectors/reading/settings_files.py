"""Settings files of brokers, such as broker.conf: found beside a store, or named for a command.

This module imports neither Arrow nor numpy, so that small processes can use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from commitlake.schemas.safe_store_files import read_file

BROKER_PLACEHOLDER = "{broker}"
MAX_BYTES = 1 << 20
"""Largest size of a settings file."""
ENCODING = "iso-8859-1"
"""Encoding of broker.conf; all relevant settings are ASCII, also in BoltMQ's broker.toml."""
_PLACES_ABOVE = ("conf/broker.conf", "broker.conf")
_PLACES_WITHIN = ("broker.conf", "conf/broker.conf")
_named: list[str] = []


@contextmanager
def use_settings_file(path: str | None) -> Iterator[None]:
    """Read the given settings file instead of the files beside the stores, inside the block.

    Args:
        path: Path of the file, with `{broker}` for the store's name; None or empty for no file.
    """
    # Restored at the end, because in a notebook commands follow each other in one process.
    before = _named[:]
    _named[:] = [path] if path else []
    try:
        yield
    finally:
        _named[:] = before


def read_settings(root: Path, broker: str, *, within_store: bool = True) -> tuple[str, str]:
    """Return path and content of a store's settings file; empty if none can be read.

    Args:
        root: the store's folder.
        broker: the store's name.
        within_store: whether a file in the store's folder may be used, which whoever writes the store can change.
    """
    if _named:
        path = _named[0].replace(BROKER_PLACEHOLDER, broker)
        with suppress(OSError, ValueError), Path(path).open("rb") as file:  # the job reports a file that it cannot read
            return path, file.read(MAX_BYTES).decode(ENCODING)
        return "", ""
    files = list_settings_files(root, within_store=within_store)
    return next(((str(path), text) for path, text in files if isinstance(text, str)), ("", ""))


def list_settings_files(root: Path, *, within_store: bool = True) -> Iterator[tuple[Path, str | OSError]]:
    """Yield the settings files in a store's folder and in the folder above it; the most reliable one comes first.

    Args:
        root: the store's folder.
        within_store: whether to yield those in the store's folder.

    Yields:
        The path, and the content, or the error if it cannot be read.
    """
    # Links above the store belong to the administrator.
    above = [((root / ".." / place).resolve(), None) for place in _PLACES_ABOVE]
    within = [(root / place, root) for place in _PLACES_WITHIN] if within_store else []
    for path, below in [*above, *within]:
        if not os.path.lexists(path):
            continue
        try:
            yield path, read_file(path, trusted_root=below, limit=MAX_BYTES).decode(ENCODING)
        except OSError as error:
            yield path, error
