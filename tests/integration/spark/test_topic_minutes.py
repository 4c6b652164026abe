"""Spark reads the sketches of `topic_minutes` that Python wrote, and finds the same quantiles."""

from __future__ import annotations

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from commitlake.pipelines.topic_minutes.minute_counts import merge_sketches, sketch_groups
from commitlake.schemas.tables.topic_minutes import SKETCH_K

RANKS = (0.01, 0.5, 0.9, 0.99)


def test_spark_merges_sketches_written_by_python(spark: SparkSession) -> None:
    counts = np.array([0, 1, 2, SKETCH_K, SKETCH_K + 1, 20 * SKETCH_K])
    values = np.random.default_rng(5).lognormal(3, 1, counts.sum())
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    sketches = sketch_groups(values, starts).to_pylist()
    frame = spark.createDataFrame([(data,) for data in sketches], "sketch binary")
    merged = frame.select(F.kll_merge_agg_double("sketch").alias("merged"))
    row = merged.select(
        F.kll_sketch_get_n_double("merged").alias("n"),
        *(F.kll_sketch_get_quantile_double("merged", F.lit(rank)).alias(f"q{rank}") for rank in RANKS),
    ).first()
    assert row is not None
    assert row["n"] == len(values)
    for rank, mine in zip(RANKS, merge_sketches(sketches).get_quantiles(RANKS, True), strict=True):
        for found in (row[f"q{rank}"], mine):
            assert abs((values <= found).mean() - rank) < 0.02


def test_spark_reads_a_small_sketch_exactly(spark: SparkSession) -> None:
    values = np.arange(1.0, 101.0)
    frame = spark.createDataFrame([(sketch_groups(values, np.array([0, 100]))[0].as_py(),)], "sketch binary")
    row = frame.select(F.kll_sketch_get_quantile_double("sketch", F.lit(0.99)).alias("p99")).first()
    assert row is not None
    assert row["p99"] == 99.0
