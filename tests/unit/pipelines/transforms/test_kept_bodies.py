"""Messages whose bodies must still be there."""

from __future__ import annotations

import datetime

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.kept_bodies import with_kept_bodies

_OLD, _DAY = datetime.date(2026, 11, 19), datetime.date(2026, 11, 20)


def test_bodies_expire_by_the_date_of_their_pack_or_message(spark: SparkSession) -> None:
    rows = [
        (("store_date=2026-11-19/p",), _DAY, False),
        (("store_date=2026-11-20/p",), _OLD, True),
        (("store_date=__HIVE_DEFAULT_PARTITION__/p",), _OLD, False),
        (("store_date=__HIVE_DEFAULT_PARTITION__/p",), _DAY, True),
        (("store_date=__HIVE_DEFAULT_PARTITION__/p",), None, False),
        (None, _OLD, True),  # has no body
    ]
    messages = spark.createDataFrame(rows, "body_ref struct<pack: string>, store_date date, is_kept boolean")
    assert_df_equality(with_kept_bodies(messages, _DAY), messages.where("is_kept"))
