"""How far the table of a topic follows `messages`, as numbers of Delta's application transactions (`txn`).

In the table of the topic:

    commitlake.topics.messages   version of `messages` up to which the table is derived, plus one
    commitlake.topics.before     the same of the commit before
    commitlake.topics.misfits    the first number, at the newest commit with misfits
    commitlake.topics.schema     number of the schema of the newest commit

In the table of current rows:

    commitlake.topics.changes      version of the table of changes up to which the rows are current, plus one
    commitlake.topics.changes_id   number made of that table's id: a table that was made again starts from version 0
    commitlake.topics.key          number made of the columns of the primary key

In `topic_misfits`:

    commitlake.topics.misfits/TABLE   the third number, once the misfits of that commit are there

So the misfits of a commit are due as long as the two numbers differ, and the schema is known by which they were judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import TOPIC_TABLES, Lake

_PREFIX = "commitlake.topics"
MESSAGES_ID = f"{_PREFIX}.messages"
"""Application whose number every commit with rows of a topic carries."""
CHANGES_ID = f"{_PREFIX}.changes"
CHANGES_TABLE_ID = f"{_PREFIX}.changes_id"
KEY_ID = f"{_PREFIX}.key"
"""Applications whose numbers every commit with current rows carries."""


@dataclass(frozen=True, slots=True)
class TopicProgress:
    """How far the table of a topic is derived.

    Attributes:
        version: version of `messages` up to which it is derived; -1 for none.
        before: the same of the commit before.
        misfits: version of the newest commit with misfits; -1 for none.
        schema: number of the schema of the newest commit; 0 for none.
    """

    version: int = -1
    before: int = -1
    misfits: int = -1
    schema: int = 0

    def transaction_numbers(self) -> dict[str, int]:
        """Return the numbers that record this progress, by `appId`."""
        # Plus one, because 0 is what a log has for a table without a commit.
        return {
            MESSAGES_ID: self.version + 1,
            f"{_PREFIX}.before": self.before + 1,
            f"{_PREFIX}.misfits": self.misfits + 1,
            f"{_PREFIX}.schema": self.schema,
        }


def read_topic_progress(table: DeltaTable | None) -> TopicProgress:
    """Read how far the table of a topic is derived; None stands for a table that does not exist yet."""

    def number(name: str) -> int:
        return 0 if table is None else table.transaction_version(f"{_PREFIX}.{name}") or 0

    return TopicProgress(number("messages") - 1, number("before") - 1, number("misfits") - 1, number("schema"))


def misfits_application_id(table_name: str) -> str:
    """Return the application whose number in `topic_misfits` says up to where it has the misfits of a table."""
    return f"{_PREFIX}.misfits/{table_name}"


def read_misfits_version(misfits: DeltaTable | None, table_name: str) -> int:
    """Return the version of `messages` of the newest commit whose misfits are recorded; -1 for none."""
    number = None if misfits is None else misfits.transaction_version(misfits_application_id(table_name))
    return (number or 0) - 1


def topic_table_name(table: str) -> str:
    """Return the name of the typed table of a topic, by which other tables name it, from its path in the lake."""
    return table.removeprefix(f"{TOPIC_TABLES}/")


def lacks_misfits(lake: Lake, table: str, progress: TopicProgress) -> bool:
    """Return whether a run was killed between its rows and its misfits.

    Args:
        lake: the lake.
        table: path of the typed table in the lake.
        progress: that of the table.
    """
    return progress.misfits > read_misfits_version(lake.find("topic_misfits"), topic_table_name(table))
