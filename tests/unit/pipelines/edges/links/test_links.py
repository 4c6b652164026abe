"""Links of records without a step, and the tables behind the examples in docstrings."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from commitlake.pipelines.edges.client_actions import ENTRIES
from commitlake.pipelines.edges.key_matching import LinkableRecords
from commitlake.pipelines.edges.links.client_actions import (
    join_consumptions,
    link_consumptions,
    link_ended_transactions,
    link_logged_consumptions,
    link_produced_records,
    link_recalled_timers,
)
from commitlake.pipelines.edges.links.copies import link_deliveries, link_replays, link_retries
from commitlake.pipelines.edges.links.transactions import OPS, link_transactions
from commitlake.pipelines.edges.step_records import MEMBERS
from commitlake.pipelines.edges.steps import STEPS
from tests.support.link_examples import LAKE, parse_entries, parse_members, print_steps

NO_ENTRIES = ENTRIES.empty_table()
LINKS: dict[str, Callable[[LinkableRecords], list[pa.Table]]] = {
    "delays": lambda f: link_deliveries(f, LAKE),
    "retries": lambda f: link_retries(f, LAKE),
    "transactions": lambda f: link_transactions(f, OPS.empty_table(), LAKE),
    "replays": lambda f: link_replays(f, LAKE),
    "produced": lambda f: [link_produced_records(f, NO_ENTRIES, LAKE)],
    "ended": lambda f: [link_ended_transactions(f, NO_ENTRIES, LAKE)],
    "recalled": lambda f: [link_recalled_timers(f, NO_ENTRIES, LAKE)],
    "consumed": lambda f: [link_consumptions(f, join_consumptions(NO_ENTRIES, NO_ENTRIES), LAKE)],
    "logged": lambda f: [link_logged_consumptions(f, NO_ENTRIES, LAKE)],
}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize(
    "members",
    [
        MEMBERS.empty_table(),
        parse_members("""
            physical_offset role topic
            100             sent orders
        """).table,
    ],
    ids=["no_member", "one_sent_message"],
)
def test_records_without_a_step_give_no_rows(
    link: Callable[[LinkableRecords], list[pa.Table]], members: pa.Table
) -> None:
    tables = link(LinkableRecords(members))
    assert [table.num_rows for table in tables] == [0] * len(tables)
    assert all(table.schema.equals(STEPS) for table in tables)


def test_a_table_of_an_example_needs_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="shorter"):
        parse_entries("""
            physical_offset group
            100
        """)


def test_steps_are_printed_in_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    entries = parse_entries("""
        physical_offset unique_key group topic  sent_offset outcome
        900             K2         shop  orders -           failed
    """)
    print_steps(link_produced_records(LinkableRecords(MEMBERS.empty_table()), entries, LAKE))
    assert capsys.readouterr().out.splitlines() == [
        "kind     from to outcome absent_reason",
        "produced -    -  failed  refused",
    ]
