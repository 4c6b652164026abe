"""Additional jars for Spark, downloaded once with the Ivy that is part of pyspark.

    for Delta                two, fetched by `python -P -m commitlake.connectors.spark.jars`; one is for the installed
                             Spark, see `versions`
    for object stores (s3a)  36, 13 MB, for Spark 4.2, fetched when a session first needs them, or by `python -m
                             commitlake.connectors.spark.jars s3`, which also prints their paths in the form of
                             `spark-submit --jars`

They are in the folder that `COMMITLAKE_JARS` names, or in the environment's `share/commitlake/jars`; those for object
stores in its folder `s3`. Fetching needs Java and the network. pyspark already contains their other dependencies.

`jars.lock` beside this file has the SHA-256 of each, in the format of `sha256sum`. A jar is checked when it is fetched
and whenever it is used: one with another checksum is not given to a JVM.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from commitlake.connectors.spark.java import JavaError, java_home
from commitlake.connectors.spark.versions import SparkVersionError, spark_version
from commitlake.schemas.errors import CommitLakeError, ExitCode

_VARIABLE = "COMMITLAKE_JARS"
_SCALA = "2.13"
_DELTA = "4.4.0"  # where the package delta-spark is not installed; it has jars for Spark 4.0, 4.1 and 4.2
_AWS_SDK = "2.35.4"
_HADOOP = "3.5.0"  # the version that Spark 4.2 contains
_LOCK = Path(__file__).with_name("jars.lock")
_S3 = "s3"
# Another dependency of hadoop-aws is a bundle of the whole SDK, 640 MB; these are the parts that it uses. Spark already
# contains the excluded modules, some in newer versions.
_S3_MODULES = """<ivy-module version="2.0">
  <info organisation="commitlake" module="s3"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.hadoop" name="hadoop-aws" rev="{hadoop}" conf="default-&gt;master"/>
    <dependency org="software.amazon.awssdk" name="s3" rev="{sdk}" conf="default-&gt;default"/>
    <dependency org="software.amazon.awssdk" name="s3-transfer-manager" rev="{sdk}" conf="default-&gt;default"/>
    <dependency org="software.amazon.awssdk" name="sts" rev="{sdk}" conf="default-&gt;default"/>
    <dependency org="software.amazon.s3.analyticsaccelerator" name="analyticsaccelerator-s3" rev="1.3.1"
      conf="default-&gt;master"/>
    <exclude org="org.slf4j"/>
    <exclude org="io.netty"/>
    <exclude org="commons-codec"/>
    <exclude org="commons-logging"/>
    <exclude org="org.apache.httpcomponents"/>
  </dependencies>
</ivy-module>
"""
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


class JarsError(CommitLakeError):
    """Error for jars that are missing, cannot be fetched, or have a wrong checksum; the message says what to do."""

    exit_code = ExitCode.FAILED


def _maven_modules() -> list[tuple[str, str]]:
    try:
        delta = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        delta = _DELTA
    return [(f"delta-spark_{spark_version()}_{_SCALA}", delta), ("delta-storage", delta)]


def jar_folder() -> Path:
    """Return the folder of the jars, which need not exist."""
    given = os.environ.get(_VARIABLE)
    return Path(given) if given else Path(sys.prefix) / "share" / "commitlake" / "jars"


def delta_jars() -> list[Path]:
    """Return the paths of Delta's jars.

    Raises:
        JarsError: if one is missing or has a wrong checksum.
        SparkVersionError: if CommitLake does not work with the installed Spark.
    """
    folder = jar_folder()
    jars = [folder / f"{name}-{version}.jar" for name, version in _maven_modules()]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        raise JarsError(
            f"the folder {folder} lacks {', '.join(missing)}: run 'python -P -m commitlake.connectors.spark.jars' once "
            f"with network access, or set {_VARIABLE} to a folder that has them"
        )
    return _check_jars(jars)


def _locked_digests() -> dict[str, str]:
    """Return the SHA-256 of every jar by name; names of jars for object stores begin with `s3/`."""
    lines = (line.split() for line in _LOCK.read_text().splitlines())
    return {name: digest for digest, name in lines}


def _check_jars(jars: list[Path], folder: str = "") -> list[Path]:
    """Check that jars have the checksums in `jars.lock`, and return them.

    Args:
        folder: prefix of their names in `jars.lock`.
    """
    locked = _locked_digests()
    for jar in jars:
        with jar.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        expected = locked.get(folder + jar.name)
        if found != expected:
            raise JarsError(
                f"{jar}: expected a jar with the SHA-256 {expected or 'of a known jar'}, found {found}. It is not the "
                "jar that CommitLake was tested with: delete it, and run 'python -P -m "
                "commitlake.connectors.spark.jars' with network access"
            )
    return jars


def fetch_delta_jars() -> None:
    """Download the jars of Delta that are missing.

    Raises:
        JarsError: if Ivy cannot fetch one, or its checksum is wrong.
        SparkVersionError: if CommitLake does not work with the installed Spark.
    """
    folder = jar_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name, version in _maven_modules():
        target = folder / f"{name}-{version}.jar"
        if not target.is_file():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                asked = ["-dependency", "io.delta", name, version, "-notransitive"]
                fetched = _download_jars(f"io.delta:{name}:{version}", asked, Path(scratch))
                _check_jars([fetched / target.name])
                (fetched / target.name).replace(target)


def s3_jars() -> list[Path]:
    """Return the paths of the jars for object stores; missing ones are downloaded first.

    Raises:
        JarsError: if Ivy cannot fetch them, or one is missing, has a wrong checksum, or is not in `jars.lock`.
    """
    if _hadoop_version() != _HADOOP:
        raise JarsError(
            f"Spark {pyspark.__version__} contains Hadoop {_hadoop_version()}, with which object stores were not "
            "tested: use Spark 4.2, or run the job with --local, which needs no jars"
        )
    folder = jar_folder() / _S3 / f"hadoop-{_hadoop_version()}-sdk-{_AWS_SDK}"
    if not folder.is_dir():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            beside = tempfile.TemporaryDirectory(dir=folder.parent)
        except OSError as error:
            raise JarsError(
                f"the jars for object stores are not installed, and cannot be written to their folder: {error}. Fetch "
                "them with 'python -P -m commitlake.connectors.spark.jars s3', or name another folder in "
                "COMMITLAKE_JARS"
            ) from None
        print("fetching the jars for object stores, once", file=sys.stderr)
        with beside as scratch:
            modules = Path(scratch) / "ivy.xml"
            modules.write_text(_S3_MODULES.format(hadoop=_hadoop_version(), sdk=_AWS_SDK))
            fetched = _download_jars("Hadoop's module for S3", ["-ivy", str(modules)], Path(scratch))
            _check_s3_jars(fetched)
            with suppress(OSError):  # another process may have been first
                fetched.rename(folder)
    return _check_s3_jars(folder)


def _check_s3_jars(folder: Path) -> list[Path]:
    """Return the jars of a folder, after checking that they are exactly those for object stores."""
    jars = _check_jars(sorted(folder.glob("*.jar")), f"{_S3}/")
    missing = {name for name in _locked_digests() if name.startswith(f"{_S3}/")} - {f"{_S3}/{jar.name}" for jar in jars}
    if missing:
        names = ", ".join(sorted(name.removeprefix(f"{_S3}/") for name in missing))
        raise JarsError(
            f"the folder {folder} lacks {names}: delete the folder, and it is fetched again over the network"
        )
    return jars


def _hadoop_version() -> str:
    """Return the version of Hadoop in pyspark, which the version of hadoop-aws must equal."""
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return client.stem.removeprefix("hadoop-client-api-")


def _download_jars(description: str, ivy_arguments: list[str], scratch_folder: Path) -> Path:
    """Download jars with Ivy, and return the folder that contains them."""
    settings, jars = scratch_folder / "ivysettings.xml", scratch_folder / "jars"
    settings.write_text(_SETTINGS)
    jars.mkdir()
    command = [
        str(java_home() / "bin" / "java"), "-cp", f"{Path(pyspark.__file__).parent}/jars/*", "org.apache.ivy.Main",
        "-settings", str(settings), "-cache", str(scratch_folder / "cache"), *ivy_arguments,
        "-types", "jar", "bundle", "-confs", "default", "-retrieve", f"{jars}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not any(jars.iterdir()):
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise JarsError(
            f"cannot fetch {description} ({last}): check the network, and whether Maven's central repository can be "
            "reached"
        )
    return jars


if __name__ == "__main__":
    try:
        fetch_delta_jars()
        if _S3 in sys.argv[1:]:
            print(",".join(str(jar) for jar in s3_jars()))
    except (JarsError, JavaError, SparkVersionError) as problem:
        sys.exit(f"error: {problem}")
