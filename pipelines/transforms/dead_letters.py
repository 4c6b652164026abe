"""Messages that consumer groups gave up, with the group and what is known of the reason."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.dead_letters import DEAD_LETTERS


def with_dead_letter_columns(messages: DataFrame, computed: Mapping[str, str]) -> DataFrame:
    """Add the computed columns of the table `dead_letters` to rows of `messages` that are dead letters.

    With `substr(topic, 6)` as the group, and no other column:

        +------------+---------------+        +-------+------------+---------------+
        |       topic|reconsume_times|        |  group|       topic|reconsume_times|
        +------------+---------------+   ->   +-------+------------+---------------+
        |%DLQ%billing|             16|        |billing|%DLQ%billing|             16|
        +------------+---------------+        +-------+------------+---------------+

    Args:
        messages: dead letters, with the columns of `messages`.
        computed: SQL of columns of `DEAD_LETTERS`, by name; it uses the columns of `messages` only.

    Returns:
        One row for each row of `messages`, with the columns `DEAD_LETTERS`; those that are neither there nor computed
        are null.
    """
    return to_columns(messages.withColumns({name: F.expr(sql) for name, sql in computed.items()}), DEAD_LETTERS)
