"""Business keys from the file of `--keys-file`."""

from __future__ import annotations

from pathlib import Path

from commitlake.jobs.cli.command import JobError

MAX_FILE_BYTES = 64 << 20


def read_keys(file_name: str) -> list[str]:
    """Read keys from a file, one per line, and skip empty lines.

    Args:
        file_name: name of the file, in UTF-8.

    Raises:
        JobError: if the file cannot be read, is too large, or has no key.
    """
    path = Path(file_name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise JobError(f"--keys-file {file_name}: expected a file to read, found: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise JobError(
            f"--keys-file {file_name}: expected at most {MAX_FILE_BYTES:,} bytes, found more", "split the file"
        )
    try:
        lines = data.decode("utf-8-sig").split("\n")  # other Unicode line separators may be part of a key
    except UnicodeDecodeError as error:
        raise JobError(f"--keys-file {file_name}: expected UTF-8, found an invalid byte at {error.start:,}") from None
    keys = [line.strip(" \t\r") for line in lines if line.strip()]
    if not keys:
        raise JobError(f"--keys-file {file_name}: expected one key per line, found none")
    return keys
