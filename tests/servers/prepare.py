"""Download and build of everything that the tests' servers need, before any test's time is measured.

    python -m tests.servers.prepare            everything that the tests of each run need
    python -m tests.servers.prepare --long     also everything that only tests marked `long` need

Existing results of earlier runs are not changed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from commitlake.connectors.spark.jars import s3_jars
from tests.servers import azure, gcs, kubernetes, s3
from tests.servers.go_programs import go_folder, go_program
from tests.servers.hbase import hbase_jars
from tests.servers.mermaid import prepare_mermaid
from tests.servers.node_programs import node_program
from tests.servers.rocketmq import VERSIONS, rocketmq_jars
from tests.servers.rocketmq_classes import class_archives
from tests.servers.spark_classes import class_archive
from tests.servers.yarn_cluster import yarn_jars
from tests.support.browsers import prepare_chromium

PARTS: dict[str, Callable[[], object]] = {
    **{f"jars of RocketMQ {version}": partial(rocketmq_jars, version) for version in VERSIONS},
    "jars of HBase": hbase_jars,
    "jars for object stores": s3_jars,
    "an S3 server": partial(go_folder, s3.SOURCES),
    "a server of Azure's blob protocol": partial(node_program, azure.PACKAGE),
    "jars of HDFS and YARN": yarn_jars,
    "Mermaid": prepare_mermaid,
    "Chromium": prepare_chromium,
    "an archive of Spark's classes": class_archive,
    **{f"archives of the classes of RocketMQ {version}": partial(class_archives, version) for version in VERSIONS},
}
LONG_PARTS: dict[str, Callable[[], object]] = {
    "a server of Google Cloud Storage's protocol": partial(go_program, gcs.MODULE, gcs.VERSION),
    "an API server of Kubernetes": partial(go_folder, kubernetes.SOURCES),
}
"""Servers that take minutes to build."""


def main() -> None:
    """Prepare everything, and print how long each part took."""
    parts = PARTS | (LONG_PARTS if sys.argv[1:] == ["--long"] else {})
    for what, make in parts.items():
        started = time.monotonic()
        make()
        print(f"{what}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
