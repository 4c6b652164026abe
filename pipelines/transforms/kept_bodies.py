"""Messages whose bodies cannot have expired."""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_DATED = "store_date="  # names of packs begin with this
_UNDATED = f"{_DATED}__"  # stands for no date in a name, and sorts after every date


def with_kept_bodies(messages: DataFrame, since: datetime.date) -> DataFrame:
    """Keep the messages whose bodies cannot have expired.

    A pack expires by the date in its name. One without a date holds messages without a time, or of many dates, and
    expires by the time when it was written, which is not before the last of them was stored.

    >>> messages = spark.sql('''
    ...     select physical_offset, named_struct('pack', pack) as body_ref, date(day) as store_date
    ...     from values
    ...         (0L, 'store_date=2026-11-19/p1', '2026-11-19'),  -- expired
    ...         (1L, 'store_date=2026-11-20/p2', '2026-11-20'),
    ...         (2L, 'store_date=__/p3',         '2026-11-19'),  -- may have expired
    ...         (3L, 'store_date=__/p3',         '2026-11-20'),
    ...         (4L, null,                       '2026-11-19')   -- has no body
    ...         as m(physical_offset, pack, day)''')
    >>> kept = with_kept_bodies(messages, datetime.date(2026, 11, 20))
    >>> kept.select("physical_offset", "body_ref.pack").show(truncate=False)
    +---------------+------------------------+
    |physical_offset|pack                    |
    +---------------+------------------------+
    |1              |store_date=2026-11-20/p2|
    |3              |store_date=__/p3        |
    |4              |NULL                    |
    +---------------+------------------------+
    <BLANKLINE>

    Args:
        messages: at least `body_ref` and `store_date`, as in `messages`.
        since: first date whose bodies cannot have expired.

    Returns:
        The columns of `messages`; one row per message whose body must still exist, or that has no body.
    """
    pack = F.col("body_ref.pack")
    is_dated_since = pack >= F.lit(f"{_DATED}{since.isoformat()}")
    is_stored_since = F.coalesce(F.col("store_date") >= F.lit(since), F.lit(False))
    return messages.where(F.coalesce(is_dated_since & (~pack.startswith(_UNDATED) | is_stored_since), F.lit(True)))
