"""Dead letters are messages with more columns."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.dead_letters import with_dead_letter_columns


def test_dead_letters_are_messages_with_more_columns(spark: SparkSession) -> None:
    messages = spark.createDataFrame([("%DLQ%billing", 16)], "topic string, reconsume_times int")
    found = with_dead_letter_columns(messages, {"group": "substr(topic, 6)", "replayed": "false"})
    expected = spark.createDataFrame(
        [("billing", None, False, "%DLQ%billing", 16)],
        "group string, reason string, replayed boolean not null, topic string, reconsume_times int",
    )
    assert_df_equality(found.select(*expected.columns), expected, ignore_metadata=True)
