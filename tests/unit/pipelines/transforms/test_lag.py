"""The lag of a group is that of its queues."""

from __future__ import annotations

from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.lag import lag_of_groups
from commitlake.schemas.tables.lag import QUEUE_LAG
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.times import EPOCH
from tests.support.analysed_lakes import rows_of


def test_lag_is_summed_by_group(spark: SparkSession) -> None:
    names = QUEUE_LAG.names
    row = dict.fromkeys(names) | {"group": "mail", "as_of": EPOCH, "bytes_min": 0, "time_lag_s_min": 0.0}
    rows = [
        row | {"messages_min": 2, "messages_max": 2, "bytes_max": 9, "time_lag_s_max": 3.0},
        row | {"messages_min": 0, "messages_max": 5, "time_lag_s_min": 1.5, "time_lag_s_max": 2.0},
        row | {"messages_min": 0, "messages_max": 0, "bytes_max": 0, "time_lag_s_max": 0.0},
    ]
    frame = spark.createDataFrame([tuple(each[name] for name in names) for each in rows], spark_schema(QUEUE_LAG))
    (found,) = rows_of(lag_of_groups(frame, ["as_of"]))
    assert found == {
        "group": "mail", "as_of": EPOCH, "queues": 3, "queues_behind": 2, "messages_min": 2, "messages_max": 7,
        "bytes_min": 0, "bytes_max": None, "time_lag_s_min": 1.5, "time_lag_s_max": 3.0, "next_message_time": None,
    }  # fmt: skip
    assert rows_of(lag_of_groups(frame, [])) == [found]
