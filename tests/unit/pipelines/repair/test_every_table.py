"""Every table of a lake can be repaired after damage to its newest log entry or to a data file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.delta import open_delta_table
from commitlake.jobs.erase.command import main as erase
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.table_damages import damage

DAMAGES = (("entry", "deleted"), ("entry", "cut"), ("entry", "empty"), ("file", "deleted"), ("file", "cut"))
KEYS: dict[str, dict[str, object]] = {
    **{table: {"replay_id": "r"} for table in ("replays", "replay_messages", "replay_rows")},
    "evidence": {"number": 1, "document": "{}"},
}
LONG = pytest.mark.long(
    "each table has one of the damages each time; tests/unit/jobs/replay has all of them for tables of replays"
)
CASES = [
    pytest.param(table, *way, marks=() if (place + number) % len(DAMAGES) == 0 else LONG)
    for place, table in enumerate(LAKE_TABLES)
    for number, way in enumerate(DAMAGES)
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with all tables; those that no run has written have a row of nulls."""
    growing = GrowingLake(tmp_path_factory.mktemp("whole"))
    for number in range(2):
        growing.configure(number + 1)
        growing.write(shop_messages(10, seed=number))
        growing.archive()
        follow_keys(growing.lake)
        asked = ["--key", f"order-{number}", "--reason", "asked", "--yes", "--quiet"]
        assert erase(["--lake", growing.lake.root, *asked]) == 0
    for table, declared in LAKE_TABLES.items():
        uri, schema = growing.lake.uri(table), declared.columns
        if not Path(uri).exists():
            row: dict[str, object] = {**dict.fromkeys(schema.names), **KEYS.get(table, {})}
            for _ in range(2):
                append_rows(growing.lake, table, pa.Table.from_pylist([row], arrow_schema(schema)))
    assert {path.parent.name for path in Path(growing.lake.root).glob("*/_delta_log")} == set(LAKE_TABLES)
    return growing


@pytest.mark.some_cases(5)
@pytest.mark.parametrize(("table", "what", "how"), CASES)
def test_each_table_is_repaired_after_each_damage(
    whole: GrowingLake, tmp_path: Path, table: str, what: str, how: str
) -> None:
    lake = whole.copy_to(tmp_path).lake
    uri = lake.uri(table)
    entry, file = max(Path(uri).glob("_delta_log/*.json")), Path(min(open_delta_table(uri).file_uris()))
    damage(entry if what == "entry" else file, how)
    plan = plan_repair(lake)
    assert not plan.is_empty
    assert {*plan.logs, *plan.files} == {table}
    assert list(plan.plan_lines())
    repair_lake(lake, plan, "1")
    again = plan_repair(lake, is_deep=False)
    assert not {*again.logs, *again.files}
