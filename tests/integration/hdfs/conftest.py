"""One real HDFS for all tests of the folder, a new folder in it for each."""

from __future__ import annotations

from tests.support.hdfs_fixtures import copy, hadoop_environment, hdfs_cluster

__all__ = ["copy", "hadoop_environment", "hdfs_cluster"]  # fixtures
