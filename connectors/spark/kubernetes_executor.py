"""Entry point of an executor's pod on Kubernetes, for images that have no `entrypoint.sh` of Spark's own images.

    command: [python3, -P, -m, commitlake.connectors.spark.kubernetes_executor]

in a pod template. Spark adds the argument `executor`, and passes everything else in variables (Spark's
resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh). So the pod of the job and those of its
executors can have the same image.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from commitlake.connectors.spark.java import java_home
from commitlake.schemas.errors import CommitLakeError, ExitCode, UsageError

_MAIN = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = re.compile(r"SPARK_JAVA_OPT_([0-9]{1,6})")
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_MEMORY = "SPARK_EXECUTOR_MEMORY"
_CLASSES_BEFORE, _CLASSES_AFTER = (
    ("HADOOP_CONF_DIR", "SPARK_CLASSPATH"),
    ("SPARK_EXTRA_CLASSPATH", "SPARK_DIST_CLASSPATH"),
)


def executor_command(
    arguments: Sequence[str], environment: Mapping[str, str], spark_home: Path, java: Path
) -> list[str]:
    """Return the command line that starts an executor.

    Args:
        arguments: those of the container: `executor`.
        environment: variables of the container.
        spark_home: folder with Spark's `jars`.
        java: home of Java.

    Raises:
        UsageError: if arguments or variables are not those that Spark gives to an executor.
    """
    if list(arguments) != ["executor"]:
        raise UsageError(
            "expected only the argument 'executor', which Spark passes to an executor's pod, found "
            f"{list(arguments)!a}: this entry point is not for other uses"
        )
    missing = [name for name in (_MEMORY, *_ARGUMENTS.values()) if not environment.get(name)]
    if missing:
        raise UsageError(
            f"the variables {', '.join(missing)} are not set: expected a pod that Spark created, in which they are set"
        )
    found = ((_OPTION.fullmatch(name), value) for name, value in environment.items())
    options = sorted((int(match[1]), value) for match, value in found if match is not None)
    memory = environment[_MEMORY]
    configuration = environment.get("SPARK_CONF_DIR", "/opt/spark/conf")
    before, after = (filter(None, map(environment.get, names)) for names in (_CLASSES_BEFORE, _CLASSES_AFTER))
    classes = ":".join([configuration, *before, f"{spark_home}/jars/*", *after])
    return [
        str(java / "bin" / "java"), *(value for _, value in options), f"-Xms{memory}", f"-Xmx{memory}",
        "-cp", classes, _MAIN,
        *(word for option, name in _ARGUMENTS.items() for word in (option, environment[name])),
    ]  # fmt: skip


def main() -> NoReturn:
    """Replace this process by the executor's JVM, so that the JVM receives the signals of Kubernetes."""
    try:
        home = _spark_home()
        command = executor_command(sys.argv[1:], os.environ, home, java_home())
    except CommitLakeError as error:
        print(f"executor: {error}", file=sys.stderr)
        sys.exit(error.exit_code or ExitCode.FAILED)
    os.environ["SPARK_HOME"] = str(home)
    os.execv(command[0], command)  # noqa: S606 (no shell is wanted)


def _spark_home() -> Path:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise UsageError("the image has no pyspark: install CommitLake with the extra 'spark' in it")
    return Path(spark.origin).parent


if __name__ == "__main__":
    main()
