"""Published jars, fetched by their coordinates into a folder.

Maven fetches them if it is installed, otherwise the Ivy in pyspark, so that a fresh machine needs only Python and a
JDK. Both use the registry of their own settings ("central"), so mirrors are used as well.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.servers.cache import build_once, cache_folder, digest

LOCK = Path(__file__).with_name("jars.lock")
"""Jars that the registry returned when the versions were chosen."""

ATTEMPTS = 4
"""A busy registry answers 429 or 5xx for a while; files already fetched are kept for the next attempt."""

FETCH_TIMEOUT_SECONDS = 600

MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>commitlake.tests</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
POM_DEPENDENCY = """    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""

# One resolver only: Ivy's default chain also searches a local Maven repository, and fails if that has a pom without its
# jar.
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="commitlake.tests" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
IVY_DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default-&gt;default"/>'
IVY_PATTERN = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"


class JarsError(Exception):
    """Error for jars that the registry did not provide."""


def java_command(tool: str = "java") -> str:
    """Return the path of a JDK's tool, from `JAVA_HOME` or otherwise from `PATH`.

    Args:
        tool: `java` or `javac`.

    Raises:
        JarsError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / tool).exists():
        return str(Path(home) / "bin" / tool)
    found = shutil.which(tool)
    if found is None:
        raise JarsError(f"no {tool} in JAVA_HOME or PATH; the servers' tests need a JDK 17")
    return found


def resolve_jars(coordinates: Sequence[str], name: str, resolver: str | None = None) -> Path:
    """Return a folder with the jars of the given coordinates, and of all their run-time dependencies.

    Args:
        coordinates: Coordinates in the form `group:artifact:version`.
        name: Prefix of the folder's name, for people who inspect the cache.
        resolver: `maven` or `ivy`; by default Maven if `mvn` is on the PATH.

    Returns:
        The folder, from the cache if it was resolved before.

    Raises:
        JarsError: The registry kept failing, or does not know the coordinates.
    """
    resolver = resolver or ("maven" if shutil.which("mvn") else "ivy")
    fetch = {"maven": _copy_by_maven, "ivy": _retrieve_by_ivy}[resolver]
    # The resolvers select slightly different sets, so each has its own folder.
    target = cache_folder() / "jars" / f"{name}-{resolver}-{digest(coordinates)}"

    def fetch_and_check(folder: Path) -> None:
        fetch(coordinates, folder)
        check_jars(folder)

    return build_once(target, fetch_and_check)


def check_jars(folder: Path, lock: Path = LOCK) -> None:
    """Check that a folder contains only the jars of a lock file, which has a SHA-256 and a name in each line.

    The resolvers name the same jar differently, so only the contents are compared.

    Raises:
        JarsError: For the first jar that is not in the lock file.
    """
    known = {line.split()[0] for line in lock.read_text().splitlines()}
    for jar in sorted(folder.glob("*.jar")):
        found = hashlib.sha256(jar.read_bytes()).hexdigest()
        if found not in known:
            raise JarsError(
                f"{jar.name}: expected a SHA-256 of {lock.name}, found {found}. If a version has changed, and the jar "
                f"is right, add the line '{found}  {jar.name}'"
            )


def _copy_by_maven(coordinates: Sequence[str], folder: Path) -> None:
    """Copy the jars into `folder` with Maven and a generated pom."""
    work = folder / ".work"
    work.mkdir()
    lines = "\n".join(POM_DEPENDENCY.format(*c.split(":")) for c in coordinates)
    (work / "pom.xml").write_text(POM.format(dependencies=lines))
    # -U: otherwise, Maven does not retry a failed look-up for a day.
    command = ["mvn", "-B", "-q", "-U", "-f", str(work / "pom.xml"), MAVEN_GOAL]
    command += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    _run_with_retries(command, folder)
    shutil.rmtree(work)


def _retrieve_by_ivy(coordinates: Sequence[str], folder: Path) -> None:
    """Retrieve the jars into `folder` with pyspark's Ivy and a separate cache."""
    work = folder / ".work"
    work.mkdir()
    (work / "ivysettings.xml").write_text(IVY_SETTINGS)
    lines = "\n".join(IVY_DEPENDENCY.format(*c.split(":")) for c in coordinates)
    (work / "ivy.xml").write_text(IVY_MODULE.format(dependencies=lines))
    command = [java_command(), "-cp", str(_pyspark_ivy_jar()), "org.apache.ivy.Main", "-warn"]
    command += ["-settings", str(work / "ivysettings.xml"), "-ivy", str(work / "ivy.xml")]
    command += ["-cache", str(cache_folder() / "ivy"), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", f"{folder}/{IVY_PATTERN}"]
    _run_with_retries(command, folder)
    shutil.rmtree(work)


def _pyspark_ivy_jar() -> Path:
    """Return the Ivy jar inside the installed pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("neither mvn nor pyspark's Ivy is here to fetch the servers' jars")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _run_with_retries(command: Sequence[str], folder: Path) -> None:
    """Run a resolver until it succeeds and there are jars in `folder`, at most `ATTEMPTS` times."""
    said = ""
    for attempt in range(ATTEMPTS):
        time.sleep(5 * attempt)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            said = f"no end within {FETCH_TIMEOUT_SECONDS} s"
            continue
        # Ivy may exit with 0 although it has retrieved nothing and printed unresolved dependencies.
        if done.returncode == 0 and any(folder.glob("*.jar")):
            return
        said = (done.stdout + done.stderr)[-4000:]
    raise JarsError(f"{command[0]} failed {ATTEMPTS} times to fetch jars; it last said:\n{said}")
