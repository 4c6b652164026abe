"""The option `--keys-file`, and the business keys in its file."""

from __future__ import annotations

from pathlib import Path

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.options import Section, option

MAX_FILE_BYTES = 64 << 20


def keys_file_option(help_text: str, older_name: str, section: Section | None = None) -> str | None:
    """Declare the option `--keys-file`, which names a file with business keys of messages, one per line.

    Args:
        older_name: an older name of the option, which the command still accepts.
    """
    return option(help_text, "--keys-file", older_name, metavar="FILE", section=section)


def read_keys(file_name: str, max_keys: int | None = None) -> list[str]:
    """Read keys from a file, one per line, and skip empty lines and repeated keys.

    Args:
        file_name: name of the file, in UTF-8.
        max_keys: largest number of different keys; None for no limit.

    Raises:
        JobError: if the file cannot be read, is too large, or has no key or too many.
    """
    path = Path(file_name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise JobError(f"--keys-file {file_name}: the file cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise JobError(
            f"--keys-file {file_name}: expected a file of at most {MAX_FILE_BYTES:,} bytes, found a larger one",
            "split the file",
        )
    try:
        lines = data.decode("utf-8-sig").split("\n")  # other Unicode line separators may be part of a key
    except UnicodeDecodeError as error:
        raise JobError(
            f"--keys-file {file_name}: expected UTF-8, found an invalid byte at position {error.start:,}"
        ) from None
    keys = list(dict.fromkeys(line.strip(" \t\r") for line in lines if line.strip()))
    if not keys:
        raise JobError(f"--keys-file {file_name}: expected one key per line, found none")
    if max_keys is not None and len(keys) > max_keys:
        raise JobError(
            f"--keys-file {file_name}: expected at most {max_keys:,} keys, found {len(keys):,}", "split the file"
        )
    return keys
