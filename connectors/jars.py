"""The jars that Spark needs for Delta: two of them, fetched once with the Ivy that is inside pyspark.

They lie in the folder that `COMMITLAKE_JARS` names, or in the environment's `share/commitlake/jars`. Where they are
not there yet, `python -m connectors.jars` fetches them; it needs Java and the network. All else that Delta asks for
is in pyspark already.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from connectors.java import JavaError, java_home

_VARIABLE = "COMMITLAKE_JARS"
_SCALA = "2.13"
_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""


class JarsError(Exception):
    """The jars are not there and could not be fetched; the message says what to do."""


def _modules() -> list[tuple[str, str]]:
    version = importlib.metadata.version("delta-spark")
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return [(f"delta-spark_{spark}_{_SCALA}", version), ("delta-storage", version)]


def jar_folder() -> Path:
    """Where the jars lie, or are to lie."""
    given = os.environ.get(_VARIABLE)
    return Path(given) if given else Path(sys.prefix) / "share" / "commitlake" / "jars"


def delta_jars() -> list[Path]:
    """The jars' paths.

    Raises:
        JarsError: if one is not there.
    """
    folder = jar_folder()
    jars = [folder / f"{name}-{version}.jar" for name, version in _modules()]
    missing = [jar.name for jar in jars if not jar.is_file()]
    if missing:
        raise JarsError(
            f"{folder} has no {', '.join(missing)}: "
            f"run 'python -m connectors.jars' once, with network, or set {_VARIABLE}"
        )
    return jars


def fetch() -> None:
    """Fetch what is missing; a jar is there whole or not at all.

    Raises:
        JarsError: if Ivy could not get one.
    """
    folder = jar_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name, version in _modules():
        target = folder / f"{name}-{version}.jar"
        if not target.is_file():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                fetched = _retrieve(name, version, Path(scratch))
                fetched.replace(target)


def _retrieve(name: str, version: str, scratch: Path) -> Path:
    settings = scratch / "ivysettings.xml"
    settings.write_text(_SETTINGS)
    command = [
        str(java_home() / "bin" / "java"), "-cp", f"{Path(pyspark.__file__).parent}/jars/*", "org.apache.ivy.Main",
        "-settings", str(settings), "-cache", str(scratch / "cache"), "-types", "jar", "-confs", "default",
        "-dependency", "io.delta", name, version, "-notransitive",
        "-retrieve", f"{scratch}/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    jar = scratch / f"{name}-{version}.jar"
    if done.returncode or not jar.is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise JarsError(
            f"io.delta:{name}:{version} could not be fetched ({last}): "
            "is there a network, and Maven's central repository in reach?"
        )
    return jar


if __name__ == "__main__":
    try:
        fetch()
    except (JarsError, JavaError) as problem:
        sys.exit(f"error: {problem}")
