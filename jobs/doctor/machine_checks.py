"""Checks of this machine: Python, packages, Java, jars, memory, folders and stores."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.cli.missing_packages import SET_UP_SCRIPT
from commitlake.jobs.doctor.findings import CheckState, DoctorFinding
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.formatted_counts import format_count

_OLDEST_PYTHON = (3, 11)
_CORE = ("deltalake", "pyarrow", "numpy", "numba")
_EXTRAS = {
    "pyspark": "spark",
    "delta-spark": "spark",
    "pandas": "spark",
    "great-expectations": "quality",
    "boto3": "s3",
    "happybase": "hbase",
    "prometheus-client": "metrics",
}
"""The extra that installs a package."""
_LITTLE_DISK = 1 << 30
_LITTLE_MEMORY = 2 << 30


def check_python() -> DoctorFinding:
    """Check that the version of Python is supported."""
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform(terse=True)}"
    if sys.version_info < _OLDEST_PYTHON:
        return DoctorFinding("python", CheckState.MISSING, found, "install Python 3.11 or newer")
    return DoctorFinding("python", CheckState.OK, found)


def check_packages() -> DoctorFinding:
    """Check that the Python packages that jobs need are installed."""
    versions, missing = [], []
    for name in (*_CORE, *_EXTRAS):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        state = CheckState.WARNING if _EXTRAS.keys() >= set(missing) else CheckState.MISSING
        return DoctorFinding("packages", state, f"not installed: {', '.join(missing)}", _installation_advice(missing))
    return DoctorFinding("packages", CheckState.OK, ", ".join(versions))


def _installation_advice(packages: Iterable[str]) -> str:
    """Return advice on how to install packages: with the script of a cloned repository, or with pip."""
    if SET_UP_SCRIPT.exists():
        return f"run {SET_UP_SCRIPT} --set-up-only"
    extras = sorted({_EXTRAS[name] for name in packages if name in _EXTRAS})
    return f"pip install 'commitlake[{','.join(extras)}]'" if extras else "pip install --force-reinstall commitlake"


def check_java() -> DoctorFinding:
    """Check that a Java version that Spark supports is installed."""
    from commitlake.connectors.spark.java import JavaError, java_home

    try:
        return DoctorFinding("java", CheckState.OK, str(java_home()))
    except JavaError as error:
        advice = "only Spark needs it, as with --spark: install Java 17 or newer"
        if SET_UP_SCRIPT.exists():
            advice += f", or run {SET_UP_SCRIPT} --set-up-only, which installs one"
        return DoctorFinding("java", CheckState.WARNING, str(error).partition(": ")[0], advice)


def check_jars() -> DoctorFinding:
    """Check that Delta's jars are present and have the tested versions."""
    if find_spec("pyspark") is None:
        return DoctorFinding("jars", CheckState.WARNING, "not needed without pyspark", "only Spark needs them")
    from commitlake.connectors.spark.jars import JarsError, delta_jars
    from commitlake.connectors.spark.versions import SparkVersionError

    try:
        found = delta_jars()
    except (JarsError, OSError, SparkVersionError) as error:
        advice = (
            "only Spark needs them, as with --spark: run 'python -P -m commitlake.connectors.spark.jars' with network"
        )
        return DoctorFinding("jars", CheckState.WARNING, str(error).partition(": run ")[0], advice)
    return DoctorFinding("jars", CheckState.OK, f"{found[0].parent}: {', '.join(jar.name for jar in found)}")


def check_spark() -> DoctorFinding:
    """Check that the version of Spark is supported."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return DoctorFinding("spark", CheckState.WARNING, "not installed", _installation_advice(["pyspark"]))
    home = os.environ.get("SPARK_HOME")
    if home:
        return DoctorFinding("spark", CheckState.WARNING, f"pyspark {version}; SPARK_HOME is {home}",
                       "unset SPARK_HOME unless that Spark has the same version")  # fmt: skip
    return DoctorFinding("spark", CheckState.OK, f"pyspark {version}")


def check_resources() -> DoctorFinding:
    """Check the number of cores and the memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return DoctorFinding("machine", CheckState.OK, format_count(cores, "core"))
    found = f"{format_count(cores, 'core')}, {size_text(memory)} of memory"
    if memory < _LITTLE_MEMORY:
        return DoctorFinding("machine", CheckState.WARNING, found, "use --threads 1: a worker takes up to 640 MiB")
    return DoctorFinding("machine", CheckState.OK, found)


def check_folder(check_name: str, folder_path: str) -> DoctorFinding:
    """Check that a folder, or its nearest existing parent, can be written and has free space.

    Args:
        check_name: name of the check.
        folder_path: path of the folder.
    """
    path = Path(folder_path).absolute()
    if path.exists() and not path.is_dir():
        return DoctorFinding(check_name, CheckState.MISSING, f"{path} is a file", "name a folder")
    nearest = next(each for each in (path, *path.parents) if each.is_dir())
    found = str(path) if nearest == path else f"{path} does not exist yet; {nearest} does"
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"x")
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        return DoctorFinding(
            check_name, CheckState.MISSING, f"{found}: {error.strerror}", "give write permission, or free some space"
        )
    found += f", {size_text(free)} free"
    if free < _LITTLE_DISK:
        return DoctorFinding(check_name, CheckState.WARNING, found, "free some space")
    return DoctorFinding(check_name, CheckState.OK, found)


def check_stores(
    store_path: str, s3_endpoint: str | None = None, s3_region: str | None = None
) -> Iterator[DoctorFinding]:
    """Check that stores exist at a path, and that their files can be read.

    Args:
        store_path: a store folder, a glob, or several with commas between.
        s3_endpoint: value of `--s3-endpoint`.
        s3_region: value of `--s3-region`.
    """
    from commitlake.connectors.formats.registry import all_formats
    from commitlake.connectors.reading.stores import find_stores
    from commitlake.connectors.storage.arrow_errors import s3_error_of
    from commitlake.connectors.storage.errors import ObjectStoreError
    from commitlake.jobs.arguments.broker_name import choose_broker_name
    from commitlake.jobs.arguments.s3 import check_stores_at_uris

    formats = all_formats()
    try:
        check_stores_at_uris(store_path, s3_endpoint, s3_region)
        found = find_stores(store_path, choose_broker_name(store_path, None, None, (), formats).name, formats=formats)
    except (CommitLakeError, OSError) as error:
        shown = error if isinstance(error, ObjectStoreError) else s3_error_of(error)
        advice = "name the folder that holds commitlog/ or journal/" if shown is None else shown.advice
        yield DoctorFinding("store", CheckState.MISSING, str(error) if shown is None else shown.found, advice)
        return
    for store in found:
        size = sum(segment.file_size for segment in store.segments)
        local = [] if store.is_remote else [segment.path for segment in store.segments]
        unreadable = [path for path in local if not os.access(path, os.R_OK)]
        what = f"{store.broker}: {store.root}, {format_count(len(store.segments), 'segment')}, {size_text(size)}"
        if unreadable:
            yield DoctorFinding("store", CheckState.MISSING, f"{what}; {unreadable[0]} cannot be read by this user",
                          "run as the broker's user, or give read permission")  # fmt: skip
        else:
            yield DoctorFinding("store", CheckState.OK, what)


def add_skipped_checks(findings: Sequence[DoctorFinding], requested: Sequence[str]) -> list[DoctorFinding]:
    """Return the findings, with a "skipped" finding added for each optional check that was not requested."""
    known = {finding.check for finding in findings}
    options = {"store": "--store", "lake": "--lake", "s3": "--lake s3://…", "hbase": "--hbase", "broker": "--namesrv"}
    more = [
        DoctorFinding(name, CheckState.SKIPPED, f"not asked for ({options[name]})")
        for name in requested
        if name not in known
    ]
    return [*findings, *more]
