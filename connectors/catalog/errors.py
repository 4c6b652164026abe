"""Error of catalogs."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class CatalogError(CommitLakeError):
    """A catalog, or a name, address or token for one, cannot be used: what was found, and what to do."""

    exit_code = ExitCode.USAGE
