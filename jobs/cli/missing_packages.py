"""Errors for packages that belong to an extra of CommitLake that is not installed.

`pip install commitlake` installs what reads and writes a lake without Spark; the extras are in `pyproject.toml`. An
import of one of their packages, wherever it fails, becomes an error that names the extra.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from commitlake.jobs.cli.command import JobError

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
    "matplotlib": "notebooks",
    "openlineage": "openlineage",
}
"""The extra that installs a package, by the name under which it is imported."""
SET_UP_SCRIPT = Path(__file__).resolve().parents[2] / "spark-submit.sh"
"""The script that sets up a clone; an installed package has none."""
_NAMESPACES = {"google": "google.cloud.storage"}
"""Names that many packages share, of which an extra installs one."""
_ADVICE = {"spark": "; a cluster's own Python has its pyspark, 4.1 or 4.2"}


def missing_extra(error: BaseException) -> JobError | None:
    """Return the error for a user if an import failed because of a missing extra, otherwise None."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    package = _NAMESPACES.get(package, package)
    if package not in EXTRAS or _is_installed(package):
        return None
    return _error(package, EXTRAS[package])


def require(package: str, purpose: str) -> None:
    """Check that a package is installed, before any work is done that would need it at its end.

    Args:
        package: name under which it is imported.
        purpose: option or command that needs it.

    Raises:
        JobError: if it is not installed; the hint names the extra.
    """
    if not _is_installed(package):
        raise _error(package, EXTRAS[package], purpose)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a package above it is missing, too
        return False


def _error(package: str, extra: str, purpose: str = "this command") -> JobError:
    hint = f"pip install 'commitlake[{extra}]' installs it{_ADVICE.get(extra, '')}"
    return JobError(f"{purpose} needs the package {package}, which is not installed", hint)
