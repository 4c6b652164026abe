"""Local paths of lakes, and the error for a place that is no lake."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from commitlake.schemas.errors import CommitLakeError, ExitCode


def local_folder(place: str) -> Path:
    """Return the absolute path, without `..`, of a local folder given as a path or a `file:` URI; links stay."""
    return Path(os.path.abspath(unquote(urlsplit(place).path) if place.startswith("file:") else place))  # noqa: PTH100


class LakeError(CommitLakeError):
    """A folder is not, or cannot become, a lake; the message is for a user."""

    exit_code = ExitCode.USAGE
