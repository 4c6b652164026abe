"""A check of the exit code of an error, for `pytest.raises(…, check=exits(ExitCode.REFUSED))`."""

from __future__ import annotations

from collections.abc import Callable

from commitlake.schemas.errors import CommitLakeError, ExitCode


def exits(code: ExitCode) -> Callable[[CommitLakeError], bool]:
    """Return the check that a command which fails with an error exits with a code."""
    return lambda error: error.exit_code == code
