"""CommitLake: the logs that message brokers leave on disk, as tables that people can query, audit and replay.

    from commitlake import register
    register(spark)
    df = spark.read.format("commitlog").load("/data/rocketmq/store")

    import commitlake
    commitlake.open("/data/lake", spark).messages(topic="orders")       # a DataFrame
    commitlake.open("/data/lake").messages(topic="orders")              # an Arrow table, without Spark or a JVM
    commitlake.open("/data/lake").lineage(key="order-4711")

The packages beside this file are links to the folders of the repository's top level:

    schemas      what data looks like: binary formats, the wire protocol, tables, expectations
    connectors   how the outside world is reached: broker stores, Spark, Delta, HBase, S3, live brokers
    pipelines    what is computed: archive, verify, rebuild, restore and the like
    jobs         the commands
    broker_lite  a compact broker
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from commitlake.pipelines.analysis.lake import AnalysisLake

__all__ = ["open", "register"]


@overload
def open(lake: str, spark: None = None, *, bodies: str | None = None) -> AnalysisLake[pa.Table]: ...  # noqa: A001


@overload
def open(lake: str, spark: SparkSession, *, bodies: str | None = None) -> AnalysisLake[DataFrame]: ...  # noqa: A001


def open(lake: str, spark: SparkSession | None = None, *, bodies: str | None = None) -> AnalysisLake[Any]:  # noqa: A001 (it reads as commitlake.open)
    """Return a lake, to query its tables; see `commitlake.pipelines.analysis.lake.AnalysisLake`.

    Args:
        lake: a folder, or `s3://bucket/prefix`, or `catalog.schema`.
        spark: a session, for DataFrames; without one, the same methods return Arrow tables.
        bodies: where the packs of bodies are; `bodies` in the lake where not given.

    Raises:
        LakeError: if a lake cannot be in such a place.
        CatalogError: if a catalog does not have the name.
    """
    from commitlake.pipelines.analysis.lake import AnalysisLake  # noqa: PLC0415 (import commitlake stays light)

    return AnalysisLake(lake, spark, bodies=bodies)


def register(spark: SparkSession, *, pushdown: bool = False) -> None:
    """Make the formats `commitlog`, `journal`, `consumequeue`, `indexfile`, `hbase` and `rocketmq` known to a session.

    Args:
        spark: the session.
        pushdown: also let Spark push predicates to the stores' readers. Spark then loses rows unless `load` is called
            again for each query, and for each branch of one; see `commitlake.connectors.sources.commitlog`.

    Workers of a session on this machine run this Python, unless PYSPARK_PYTHON names another one.

    Warns:
        UserWarning: if PYSPARK_PYTHON names a Python that has no CommitLake, or because of `pushdown`.
    """
    from commitlake.connectors.hbase import register_hbase  # noqa: PLC0415 (pyspark, only where wanted)
    from commitlake.connectors.rocketmq import register_rocketmq  # noqa: PLC0415
    from commitlake.connectors.sources import register_stores  # noqa: PLC0415
    from commitlake.connectors.spark.worker_check import choose_python  # noqa: PLC0415

    choose_python(spark)
    register_stores(spark, pushdown=pushdown)
    register_hbase(spark)
    register_rocketmq(spark)
