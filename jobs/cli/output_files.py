"""Checks, before a job starts, that its text output files can be written."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.lake.owned_folders import refuse_owned_folder
from commitlake.schemas.errors import CommitLakeError, ExitCode

_HEAD_BYTES = 4096


class OutputFileError(CommitLakeError):
    """Error for an output file that cannot be written, or would replace another file; the message is for a user."""

    exit_code = ExitCode.USAGE


def check_output_file(option: str, path: Path) -> None:
    """Raise an error if a text file cannot be written at the end of the job, or would replace a binary file.

    Logs, queues, indexes and data files of tables have NUL bytes near their beginning, and texts have none. So a page
    is not written in place of a segment, if a user gives the paths in the wrong order.

    Args:
        option: name of the option, with its dashes.
        path: its value.

    Raises:
        OutputFileError: with option and path.
        LakeError: if the path is in a table of a lake, or in a folder of a broker's store.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OutputFileError(
            f"{option} {path}: expected a file in an existing folder, found a folder, or no such parent folder"
        )
    if _is_binary(path):
        raise OutputFileError(
            f"{option} {path}: the file contains binary data, which would be replaced: expected a new file, or one "
            "with text. Name another file"
        )
    refuse_owned_folder(str(path), option)


def _is_binary(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b"\0" in file.read(_HEAD_BYTES)
    except OSError:  # an unreadable file may still be replaceable
        return False
