"""Settings and checks for a session whose master is YARN.

Hadoop's client finds YARN by the files in the folder that `HADOOP_CONF_DIR` or `YARN_CONF_DIR` names. Without them it
would try a resource manager on this machine, for a quarter of an hour.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from commitlake.schemas.errors import UsageError

MASTER = "yarn"
SETTINGS = {
    # The working folder of a container has a path that is too long for a socket in it.
    "spark.python.unix.domain.socket.enabled": "false",
}
"""Settings that differ on YARN."""
_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_SITE = "yarn-site.xml"
_SPARK_ENVIRONMENT = "spark-env.sh"


def check_yarn_configuration(spark_configuration: Path | None, environment: Mapping[str, str] = os.environ) -> None:
    """Check that Hadoop's client can find YARN's configuration.

    Args:
        spark_configuration: folder of Spark's configuration, or None. A `spark-env.sh` there may set the variables, so
            nothing is checked if there is one.
        environment: the environment variables.

    Raises:
        UsageError: if no variable names a folder with a `yarn-site.xml`.
    """
    if spark_configuration is not None and (spark_configuration / _SPARK_ENVIRONMENT).is_file():
        return
    given = {name: environment[name] for name in _VARIABLES if environment.get(name)}
    for name, folder in given.items():
        if not Path(folder).is_absolute():  # the JVM works in another folder
            raise UsageError(f"{name}: expected the absolute path of a folder, found {folder}")
    if any((Path(folder) / _SITE).is_file() for folder in given.values()):
        return
    found = ", ".join(f"no such file in {name}={folder}" for name, folder in given.items()) or "neither is set"
    raise UsageError(
        "--master yarn: expected HADOOP_CONF_DIR or YARN_CONF_DIR to name the folder with the cluster's "
        f"{_SITE}; {found}"
    )
