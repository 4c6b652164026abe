"""The Python API: stories, records, bodies and topics of a lake, without Spark."""

from __future__ import annotations

import datetime
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import NoTableError
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.analysis.lake import AnalysisLake
from commitlake.pipelines.analysis.selection_arguments import SelectionArguments, make_selection
from commitlake.pipelines.message_keys.table_update import catch_up_keys
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.archive_runs import GAPS
from tests.support.lakes import GrowingLake
from tests.support.lineage_lakes import KEY, order_lake
from tests.support.logs import new_message


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with bodies and keys, as archive runs make it."""
    growing = GrowingLake(tmp_path_factory.mktemp("lake"))
    growing.write(
        new_message(number, topic="orders", body=b'{"email":"ada@example.com","n":%d}' % number,
                    properties=(("KEYS", f"order-{number % 3}"), ("UNIQ_KEY", f"U{number}")))
        for number in range(9)
    )  # fmt: skip
    growing.archive()
    catch_up_keys(growing.lake)
    return growing


def test_a_story_needs_one_call(tmp_path: Path) -> None:
    order_lake(tmp_path)
    lake = commitlake.open(str(tmp_path / "lake"))
    assert isinstance(lake, AnalysisLake)
    assert repr(lake) == f"commitlake.open({str(tmp_path / 'lake')!r})"
    story = lake.lineage(key=KEY)
    assert [outcome.group for outcome in story.outcomes] == ["audit", "late", "billing"]
    assert story.steps[0].title == "sent to orders"


def test_stories_of_many_keys_are_those_of_each(archived: GrowingLake) -> None:
    lake = commitlake.open(archived.lake.root)
    keys = ["order-2", "order-0", "none", "order-1"]
    assert list(lake.stories(keys, limit=2)) == [lake.lineage(key=key, limit=2) for key in keys]
    with pytest.raises(UsageError, match="limit: expected 1 or more"):
        lake.stories(keys, limit=0)
    with pytest.raises(UsageError, match="keys: expected texts"):
        lake.stories([7])  # type: ignore[list-item]


def test_a_missing_table_is_an_error_or_empty(archived: GrowingLake, tmp_path: Path) -> None:
    lake = commitlake.open(archived.lake.root)
    with pytest.raises(NoTableError, match="has no table 'gaps' yet"):
        lake.table("gaps")
    assert lake.table("gaps", or_empty=True).equals(arrow_schema(GAPS).empty_table())
    assert lake.table("messages", or_empty=True).num_rows == archived.count
    with pytest.raises(LakeError, match="is not a lake"):
        commitlake.open(str(tmp_path)).table("gaps", or_empty=True)


def test_records_and_bodies_are_found_by_key_offset_and_id(archived: GrowingLake) -> None:
    lake = commitlake.open(archived.lake.root)
    records = lake.records(key="order-1")
    assert [record.unique_key for record in records] == ["U1", "U4", "U7"]
    body = b'{"email":"ada@example.com","n":4}'
    assert lake.body(records[1]) == body
    assert lake.body((records[1].broker, records[1].physical_offset)) == body
    assert lake.body("U4") == body
    with pytest.raises(UsageError, match="found 0"):
        lake.body("U99")


def test_a_story_has_bodies_on_request_and_masked_values(archived: GrowingLake) -> None:
    lake = commitlake.open(archived.lake.root)
    plain = lake.lineage(id="U4")
    assert plain.records[0].body is None
    assert lake.lineage(id="U4", bodies=True).records[0].body == b'{"email":"ada@example.com","n":4}'
    masked = lake.lineage(id="U4", bodies=True, masks=["body.email=null"])
    assert b"ada" not in (masked.records[0].body or b"")


def test_times_without_a_zone_are_utc(archived: GrowingLake) -> None:
    lake = commitlake.open(archived.lake.root)
    first = lake.records(key="order-1")[0].stored_at
    assert first is not None
    plain = first.replace(tzinfo=None) + datetime.timedelta(milliseconds=1)
    assert len(lake.records(key="order-1", since=plain)) == 2
    assert [node.topic for node in lake.topics(plain - datetime.timedelta(days=1), plain).topics] == ["orders"]


def test_times_may_be_texts_and_wrong_ones_are_named(archived: GrowingLake) -> None:
    lake = commitlake.open(archived.lake.root)
    assert lake.records(key="order-1", until="2020-11-15T00:00") == []
    with pytest.raises(UsageError, match="since: expected a time in ISO 8601"):
        lake.lineage(key="order-1", since="yesterday")
    with pytest.raises(UsageError, match="topics: expected a time for each of since and until"):
        lake.topics("2023-11-15", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [AnalysisLake.messages, AnalysisLake.tps, AnalysisLake.dead_letters])
def test_help_and_notebooks_show_the_conditions(method: Callable[..., object]) -> None:
    signature = inspect.signature(method)
    assert "chosen" not in signature.parameters
    for name in SelectionArguments.__annotations__:
        assert signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert signature.parameters[name].default is None
        assert f"\n    {name}: " in inspect.getdoc(method)  # type: ignore[operator]
    assert list(inspect.signature(make_selection).parameters) == list(SelectionArguments.__annotations__)


def test_lineage_does_not_load_spark_pandas_or_the_compiler(tmp_path: Path) -> None:
    order_lake(tmp_path)
    code = (
        "import sys, commitlake\n"
        "heavy = {'pyspark', 'pandas', 'numba', 'deltalake'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"story = commitlake.open({str(tmp_path / 'lake')!r}).lineage(key={KEY!r})\n"
        "assert story.steps\n"
        "found = (heavy - {'deltalake'}) & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
