"""Errors for packages that belong to an extra of CommitLake that is not installed.

`pip install commitlake` installs what reads and writes a lake without Spark; the extras are in `pyproject.toml`. An
import of one of their packages, wherever it fails, becomes an error that names the extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from commitlake.schemas.errors import CommitLakeError, ExitCode

EXTRAS = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "great_expectations": "quality",
    "happybase": "hbase",
    "boto3": "s3",
    "botocore": "s3",
    "obstore": "azure",
    "google.cloud.storage": "gcs",
    "hdfs_native": "hdfs",
    "prometheus_client": "metrics",
    "uvloop": "broker",
    "plotly": "notebooks",
    "openlineage": "openlineage",
    "pyiceberg": "iceberg",
}
"""The extra that installs a package, by the name under which it is imported."""
SET_UP_SCRIPT = Path(__file__).resolve().parents[2] / "spark-submit.sh"
"""The script that sets up a clone; an installed package has none."""
_NAMESPACES = {"google": "google.cloud.storage"}
"""Names that many packages share, of which an extra installs one."""
_ADVICE = {"spark": "; a cluster's own Python has its pyspark, 4.1 or 4.2"}


class MissingPackageError(CommitLakeError):
    """Error for a package that is not installed; the hint names the extra that installs it."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def find_missing_package(error: BaseException) -> MissingPackageError | None:
    """Return the error for a user if an import failed because of a missing extra, otherwise None."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    package = _NAMESPACES.get(package, package)
    if package not in EXTRAS or _is_installed(package):
        return None
    return _missing_package_error(package, EXTRAS[package])


def require_package(package: str, purpose: str) -> None:
    """Check that a package is installed, before long work begins that would otherwise fail at its end.

    Args:
        package: name under which it is imported.
        purpose: option or command that needs it.

    Raises:
        MissingPackageError: if it is not installed; the hint names the extra.
    """
    if not _is_installed(package):
        raise _missing_package_error(package, EXTRAS[package], purpose)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a package above it is missing, too
        return False


def _missing_package_error(package: str, extra: str, purpose: str = "this command") -> MissingPackageError:
    hint = f"pip install 'commitlake[{extra}]' installs it{_ADVICE.get(extra, '')}"
    return MissingPackageError(f"{purpose} needs the package {package}, which is not installed", hint)
