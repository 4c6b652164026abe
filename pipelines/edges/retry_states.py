"""Content of the brokers' retry stores as steps: messages that wait for their next delivery, and dead letters.

A retry store changes constantly, so these steps show its state at the last archive run of the store. They are among the
open steps, and each run replaces those of its stores. Their end `to` is in no log and is therefore absent.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays_without_pandas import to_boolean_array
from commitlake.connectors.log_format.recorded_deliveries import RETRY_ROWS
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.edges.client_actions import build_unique_keys
from commitlake.pipelines.edges.key_matching import LinkableRecords, encode_key_columns, match_same_key
from commitlake.pipelines.edges.lake_spans import BrokerSpans
from commitlake.pipelines.edges.row_lookup import refer_to_positions
from commitlake.pipelines.edges.step_records import MEMBERS
from commitlake.pipelines.edges.steps import FROM, TO, make_steps
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind


@dataclass(frozen=True)
class RetryEntries:
    """Messages in the retry stores in which brokers keep failed messages until their next attempt.

    Attributes:
        brokers: names of the stores; the steps of other stores stay as they are.
        rows: a table of `RETRY_ROWS`.
    """

    brokers: Collection[str] = ()
    rows: pa.Table = field(default_factory=RETRY_ROWS.empty_table)

    def drop_positions(self, positions: pa.Table) -> RetryEntries:
        """Return a copy without the messages at the given log positions."""
        if not positions.num_rows or not self.rows.num_rows:
            return self
        chosen = pc.invert(refer_to_positions(self.rows, ("broker", "physical_offset"), positions))
        return replace(self, rows=self.rows.filter(chosen))

    def differs_from_steps(self, steps: pa.Table) -> bool:
        """Return whether the messages in these retry stores differ from those of the given edges."""
        known = steps.filter(to_boolean_array(_retry_entry_of_broker_mask(steps, self.brokers))).select(_STATE)
        state = link_retry_entries(LinkableRecords(MEMBERS.empty_table()), self.rows, BrokerSpans()).select(_STATE)
        if known.num_rows != state.num_rows:
            return True
        order = [(name, "ascending") for name in _STATE]
        return not known.sort_by(order).combine_chunks().equals(state.sort_by(order).combine_chunks())

    def exclude_retry_steps(self, steps: pa.Table) -> pa.Table:
        """Return the edges that do not lead to an entry in one of these retry stores."""
        return steps.filter(to_boolean_array(~_retry_entry_of_broker_mask(steps, self.brokers)))


_STATE = ["kind", "from_broker", "from_physical_offset", "from_key", "consumer_group", "attempt", "due_timestamp",
          "event_timestamp"]  # fmt: skip
_KINDS = (EdgeKind.RETRIED, EdgeKind.DEAD)


def link_retry_entries(members: LinkableRecords, rows: pa.Table, spans: BrokerSpans) -> pa.Table:
    """Return an edge from the record of each message in a retry store to the message's entry there.

    Below, the second message is a dead letter whose record the lake never had:

    >>> from tests.support.link_examples import LAKE, parse_members, print_steps
    >>> members = parse_members('''
    ...     physical_offset unique_key    topic
    ...     100             orders/0/5@a  orders
    ... ''')
    >>> row = {"broker": "a", "topic": "orders", "queue_id": 0, "consumer_group": "bill"}
    >>> rows = pa.Table.from_pylist([
    ...     {**row, "queue_offset": 5, "physical_offset": 100, "attempt": 2, "is_dead": False},
    ...     {**row, "queue_offset": 6, "physical_offset": 200, "attempt": 4, "is_dead": True},
    ... ], RETRY_ROWS)
    >>> print_steps(link_retry_entries(members, rows, LAKE), "attempt", "absent_end", "consumer_group")
    kind    from to outcome absent_reason attempt absent_end consumer_group
    retried 100  -  -       retry_store   2       to         bill
    dead    200  -  -       lost          4       from       bill
    """
    rows = rows.combine_chunks()
    keys = pc.cast(build_unique_keys(rows), pa.string())
    left, right = encode_key_columns(
        [rows.column("broker"), rows.column("physical_offset"), keys],
        members.columns(["broker", "physical_offset", "unique_key"], np.arange(len(members))),
    )
    found, _ = match_same_key(left, right)
    is_there = to_boolean_array(found >= 0)
    brokers, places = (rows.column(name).combine_chunks() for name in ("broker", "physical_offset"))
    kinds = pc.if_else(rows.column("is_dead"), str(EdgeKind.DEAD), str(EdgeKind.RETRIED))
    return make_steps(kinds, members.table, found, None, {
        "from_key": keys,
        "to_key": keys,
        "from_broker": brokers,
        "from_physical_offset": places,
        "from_topic": rows.column("topic"),
        "consumer_group": rows.column("consumer_group"),
        "attempt": rows.column("attempt"),
        "due_timestamp": rows.column("due_timestamp"),
        "event_timestamp": rows.column("event_timestamp"),
        "definer_broker": brokers,
        "definer_offset": places,
        "absent_end": pc.if_else(is_there, TO, FROM),
        "absent_reason": pc.if_else(is_there, str(AbsentReason.RETRY_STORE), spans.reasons_at_positions(brokers,
        places)),
    })  # fmt: skip


def retry_entry_mask(steps: pa.Table) -> Array:
    """Return a mask of the edges that lead to an entry in a broker's retry store."""
    is_kind = pc.is_in(steps.column("kind"), pa.array(list(map(str, _KINDS))))
    found: Array = pc.and_(is_kind, pc.is_null(steps.column("to_physical_offset"))).to_numpy()
    return found


def _retry_entry_of_broker_mask(steps: pa.Table, brokers: Collection[str]) -> Array:
    of_them: Array = pc.is_in(steps.column("from_broker"), pa.array(sorted(brokers), pa.string())).to_numpy()
    return retry_entry_mask(steps) & of_them
