"""The command of an executor in a pod, from the variables that Spark gives to its container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.spark.kubernetes_executor import executor_command
from commitlake.schemas.errors import ExitCode, UsageError

SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-application-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "archive-exec-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_10": "-Dlast=a b",
    "SPARK_JAVA_OPT_2": "-Dsecond=2",
    "SPARK_JAVA_OPT_0": "-Dfirst=$HOME",
}
"""As in a pod that Spark 4.2 has made."""
MODULE = "commitlake.connectors.spark.kubernetes_executor"


def test_the_command_has_what_spark_passes() -> None:
    command = executor_command(["executor"], SPARK, Path("/py/pyspark"), Path("/java"))
    assert command == [
        "/java/bin/java", "-Dfirst=$HOME", "-Dsecond=2", "-Dlast=a b", "-Xms1024m", "-Xmx1024m",
        "-cp", "/opt/spark/conf:/py/pyspark/jars/*", "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.1.2.3:7078", "--executor-id", "7", "--cores", "2",
        "--app-id", "spark-application-1", "--hostname", "10.1.2.4", "--resourceProfileId", "0",
        "--podName", "archive-exec-7",
    ]  # fmt: skip


def test_the_folder_of_settings_may_be_another() -> None:
    command = executor_command(["executor"], {**SPARK, "SPARK_CONF_DIR": "/conf"}, Path("/py"), Path("/java"))
    assert command[command.index("-cp") + 1] == "/conf:/py/jars/*"


def test_classes_of_the_user_are_before_and_behind_those_of_spark() -> None:
    more = {
        "SPARK_CLASSPATH": "/more/*",
        "HADOOP_CONF_DIR": "/hadoop",
        "SPARK_DIST_CLASSPATH": "/dist",
        "SPARK_EXTRA_CLASSPATH": "",
    }
    command = executor_command(["executor"], {**SPARK, **more}, Path("/py"), Path("/java"))
    assert command[command.index("-cp") + 1] == "/opt/spark/conf:/hadoop:/more/*:/py/jars/*:/dist"


@pytest.mark.parametrize("arguments", [[], ["driver"], ["executor", "more"]])
def test_another_role_is_refused(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match="expected only the argument 'executor'"):
        executor_command(arguments, SPARK, Path("/py"), Path("/java"))


def test_a_pod_that_spark_did_not_make_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "executor"], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "SPARK_EXECUTOR_ID": "1"}, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert done.returncode == ExitCode.USAGE
    assert "the variables SPARK_EXECUTOR_MEMORY, SPARK_DRIVER_URL" in done.stderr
    assert "Traceback" not in done.stderr
