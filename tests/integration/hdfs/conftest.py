"""A real HDFS, shared by this folder's tests; each test has its own folder in it."""

from __future__ import annotations

from tests.support.hdfs_fixtures import copy, hadoop_environment, hdfs_cluster

__all__ = ["copy", "hadoop_environment", "hdfs_cluster"]  # fixtures
