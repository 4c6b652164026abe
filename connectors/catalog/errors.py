"""Errors of catalogs.

CatalogError                    a name, address, token or answer that cannot be used: what was found, and what to do
├── CatalogUnavailableError     a server that is busy, failing or unreachable; a later attempt may succeed
└── CatalogConflictError        the catalog already has another table, volume or lake under the name
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class CatalogError(CommitLakeError):
    """A catalog, or a name in one, cannot be used."""

    exit_code = ExitCode.USAGE


class CatalogUnavailableError(CatalogError):
    """A catalog's server is busy, failing or unreachable; a retry may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class CatalogConflictError(CatalogError):
    """A name of the catalog is already used for something else."""

    exit_code = ExitCode.REFUSED
