"""The newest version of each table of a lake, stored beside the tables in `_newest/<table>.json`.

A log that has lost its newest entry and the seal of that entry looks like the complete log of an older table, and a
table without a log looks like one that never existed. The stored version reveals the loss.

    {"table": "messages", "version": 7}
    <SHA-256 of that line>

It is written after each commit, next to the seal. A damaged or missing file is ignored.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from contextlib import suppress
from pathlib import Path

from commitlake.connectors.lake.delta_log.versions import StorageOptions, table_filesystem
from commitlake.connectors.lake.paths import local_folder_or_none
from commitlake.connectors.storage.adapter_choice import open_lake_storage
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.schemas.layouts.integer_parsing import INT64_MAX
from commitlake.schemas.safe_store_files import read_file


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of bytes in hex."""
    return hashlib.sha256(data).hexdigest()


def add_digest_line(text: bytes) -> bytes:
    """Return a line's bytes, followed by a line with the SHA-256 of these bytes."""
    return text + b"\n" + sha256_hex(text).encode() + b"\n"


def verify_digest_line(data: bytes) -> bytes | None:
    """Return the first line of bytes that `add_digest_line` has returned; None if the bytes are damaged."""
    text, _, found = data.removesuffix(b"\n").partition(b"\n")
    return text if found.decode("ascii", "replace") == sha256_hex(text) else None


NOTES = "_newest"
"""Name of a folder in the lake."""


def read_newest_version(table_uri: str, storage_options: StorageOptions = None) -> int:
    """Return the newest version of a table that the lake has recorded; -1 if there is none.

    Args:
        table_uri: path or URI of the table.
        storage_options: deltalake's options for an object store.
    """
    root, name = _split_table_uri(table_uri)
    try:
        if local_folder_or_none(root) is None:
            with table_filesystem(root, storage_options).open_input_stream(f"{NOTES}/{name}.json") as source:
                data = bytes(source.read())
        else:
            data = read_file(Path(root) / NOTES / f"{name}.json")
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return _parse_newest_version(data, name)


def write_newest_version(table_uri: str, version: int, s3: S3Options | None = None) -> None:
    """Record the number of a table's newest version in the lake, beside the table.

    Args:
        table_uri: path or URI of the table.
        version: the version of the table.
        s3: the object store; by default that of the environment.
    """
    root, name = _split_table_uri(table_uri)
    data = add_digest_line(json.dumps({"table": name, "version": version}).encode())
    with open_lake_storage(f"{root}/{NOTES}", s3).open_write(f"{name}.json") as file:
        file.write(data)


def delete_newest_version(table_uri: str, storage_options: StorageOptions = None) -> None:
    """Delete the record of a table's newest version number, because the table is removed."""
    root, name = _split_table_uri(table_uri)
    with suppress(FileNotFoundError):
        table_filesystem(root, storage_options).delete_file(f"{NOTES}/{name}.json")


def _split_table_uri(table_uri: str) -> tuple[str, str]:
    """Split a table's URI into the folder that contains the table, and the table's name."""
    root, name = posixpath.split(table_uri.rstrip("/"))
    return root or posixpath.curdir, name


def _parse_newest_version(data: bytes, name: str) -> int:
    text = verify_digest_line(data)
    if text is None:
        return -1
    note = json.loads(text)
    version = note["version"] if note["table"] == name else -1
    return version if 0 <= version <= INT64_MAX else -1
