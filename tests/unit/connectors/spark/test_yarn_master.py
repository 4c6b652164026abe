"""Tests of the session of an application master; tests/integration/spark/test_yarn.py runs jobs in a real one."""

from __future__ import annotations

import subprocess
import sys

from pyspark.sql import SparkSession

from commitlake.connectors.spark.classic_session import connect_to_driver_jvm

PROGRAM = """
from pyspark import SparkContext
from commitlake.connectors.spark.classic_session import end_session
end_session(3)
print(SparkContext._gateway, SparkContext._active_spark_context)
"""


def test_a_started_jvm_is_joined(spark: SparkSession) -> None:
    assert connect_to_driver_jvm() is spark.sparkContext._jvm


def test_no_session_is_started_after_a_job_that_found_a_problem() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"
