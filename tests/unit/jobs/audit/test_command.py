"""Tests of an audit before Spark starts: its moment, span and comparisons, and its text output."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.reading.snapshots import StoreRange
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.jobs.audit import command as audit
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.query import command as query
from commitlake.jobs.restore import command as restore
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.audit import audited_versions as audit_moment
from commitlake.pipelines.audit.audited_ranges import AuditSpan
from commitlake.pipelines.audit.audited_versions import LakeState, read_lake_state, wait_for_hbase
from commitlake.pipelines.audit.store_ranges import find_ranges_in_stores
from commitlake.pipelines.maintenance.expiry import record_expiry
from commitlake.schemas.errors import ExitCode, UnavailableError
from tests.support.lakes import GrowingLake, prepared_lake, shop_messages
from tests.support.opened_tables import opened

__all__ = ["opened"]  # a fixture

DAY = datetime.date(2026, 11, 20)


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GrowingLake:
    """A lake of two runs, which an audit does not wait for."""
    monkeypatch.setattr(audit_moment, "WAIT_SECONDS", 0)
    return prepared_lake(tmp_path, _archive_twice)


def _archive_twice(growing: GrowingLake) -> None:
    for seed in range(2):
        growing.write(shop_messages(10, seed=seed))
        growing.archive()


@pytest.mark.long("the opens of an archive run are counted each time")
def test_an_audit_opens_tables_a_limited_number_of_times(tmp_path: Path, opened: list[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(20))
    run_archive(ThreadRunner(1), Config(str(growing.store), growing.lake))
    opened.clear()
    assert audit.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
    # At the moment, in one view after it, and at the newest version where others may have changed a table meanwhile.
    assert Counter(opened) == {
        "messages": 5, "archive_runs": 3, "profiles": 3, "edges": 3, "message_keys": 2, "quality_results": 2,
        "topic_minutes": 2,
    }  # fmt: skip


def at(text: str) -> datetime.datetime:
    """Return a time of the test's day."""
    return datetime.datetime.fromisoformat(f"{DAY}T{text}Z")


def test_a_span_is_widened_to_whole_windows() -> None:
    assert AuditSpan(at("14:05"), at("14:25:01")).whole_windows() == AuditSpan(at("14:00"), at("14:30"))
    assert AuditSpan(at("14:10"), at("14:20")).whole_windows() == AuditSpan(at("14:10"), at("14:20"))


def test_a_span_to_the_last_representable_time_has_no_end() -> None:
    last = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    assert AuditSpan(at("14:00"), last).whole_windows() == AuditSpan(at("14:00"))
    assert AuditSpan().whole_windows() == AuditSpan()
    assert str(AuditSpan(at("14:00"), at("14:30"))) == "from 2026-11-20 14:00 to 2026-11-20 14:30"


def test_a_span_starts_after_the_expired_messages() -> None:
    assert AuditSpan(None, at("14:00")).limit_to_dates_from(DAY) == AuditSpan(at("00:00"), at("14:00"))
    assert AuditSpan(at("14:00")).limit_to_dates_from(DAY) == AuditSpan(at("14:00"))
    assert AuditSpan(at("14:00")).limit_to_dates_from(DAY + datetime.timedelta(days=1)).first == at(
        "00:00"
    ) + datetime.timedelta(days=1)
    assert AuditSpan().limit_to_dates_from(None) == AuditSpan()


def test_a_moment_is_one_version_and_its_commit(growing: GrowingLake) -> None:
    record_expiry(growing.lake, "bodies", DAY)
    moment = read_lake_state(growing.lake)
    assert moment.version == DeltaTable(growing.lake.uri("messages")).version() == moment.committed + 1
    assert (moment.commit.sequence, moment.profiles, moment.later) == (2, None, ())
    assert moment.expired == {"bodies": DAY}


def test_runs_that_commit_during_the_audit_are_left_out(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[str] = []

    def one_more(lake: Lake, commit: object) -> list[object]:
        growing.write(shop_messages(10, seed=len(later) + 2))
        later.append(growing.archive().run_id)
        return []

    monkeypatch.setattr(audit_moment, "_unfinished_runs", one_more)
    moment = read_lake_state(growing.lake)
    assert moment.commit.sequence == 2
    assert moment.later == tuple(later)


def test_an_unfinished_run_is_an_error(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    growing.write(shop_messages(10, seed=5))
    growing.archive(finish=False)
    assert audit.main(["--lake", growing.lake.root]) == ExitCode.FAILED
    printed = capsys.readouterr().err
    assert "run 3, or one before it, is not finished" in printed
    assert "run 'commitlake archive' to finish it" in printed
    growing.write(shop_messages(10, seed=6))
    growing.archive()
    assert read_lake_state(growing.lake).commit.sequence == 4


def test_a_run_that_finishes_in_time_is_waited_for(growing: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_moment, "WAIT_SECONDS", 60)
    answers = iter([["run 2"], ["run 2"], []])
    monkeypatch.setattr(audit_moment, "_unfinished_runs", lambda *_: next(answers))
    assert read_lake_state(growing.lake).commit.sequence == 2
    assert list(answers) == []


def test_hbase_that_has_not_followed_the_newest_run_is_an_error(growing: GrowingLake) -> None:
    moment = read_lake_state(growing.lake)
    wait_for_hbase(lambda: moment.committed, moment)
    for version_there in (lambda: None, lambda: moment.committed - 1):
        with pytest.raises(UnavailableError, match="HBase does not have the messages of archive run 2 yet") as refused:
            wait_for_hbase(version_there, moment)
        assert refused.value.exit_code == ExitCode.FAILED


def test_a_folder_without_a_lake_has_no_moment(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="nothing is archived in it yet"):
        read_lake_state(Lake(str(tmp_path)))


def test_brokers_on_only_one_side_are_noted(growing: GrowingLake) -> None:
    progress = {"broker-a": StoreProgress(500), "broker-c": StoreProgress(9)}
    ranges, notes = find_ranges_in_stores(str(growing.store), None, progress)
    assert ranges == {"broker-a": StoreRange(0, 500)}
    assert notes == ["broker-c: in the lake, but not among the given stores"]
    ranges, notes = find_ranges_in_stores(str(growing.store), "broker-b", progress)
    assert ranges == {}
    assert notes[0] == "broker-b: nothing of this store is in the lake"
    assert find_ranges_in_stores(str(growing.store), None, {"broker-a": StoreProgress(0)}) == (
        {},
        ["broker-a: its store starts at 0, but the lake ends at 0"],
    )


def test_a_store_of_another_broker_is_refused(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--lake", growing.lake.root, "--store", str(growing.store), "--broker", "broker-b"]) == 2
    error = capsys.readouterr().err
    assert (
        "have no messages in common: broker-b: nothing of this store is in the lake; broker-a: in the lake, but"
        in error
    )


def test_a_time_range_that_ends_before_it_begins_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--lake", "unused", "--from", "2026-01-02", "--to", "2026-01-01"]) == ExitCode.USAGE
    assert "is not before --to" in capsys.readouterr().err


def test_bodies_in_an_unsupported_object_store_are_refused(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(["--lake", growing.lake.root, "--bodies", "gs://bucket"]) == ExitCode.USAGE
    assert "bodies in gs://bucket: expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "more"), [(audit, ()), (maintain, ()), (restore, ("--out", "unused")), (query, ("--id", "0A", "--body"))]
)
@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_missing_folder_of_bodies_is_refused(
    growing: GrowingLake,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    job: ModuleType,
    more: Sequence[str],
    form: str,
) -> None:
    missing = form.format(tmp_path / "missing")
    assert job.main(["--lake", growing.lake.root, "--bodies", missing, *more]) == ExitCode.USAGE
    assert f"--bodies {missing}: expected the folder with the bodies of the lake, found none" in capsys.readouterr().err


def test_a_moment_can_be_without_expiries(growing: GrowingLake) -> None:
    moment = read_lake_state(growing.lake)
    assert moment == LakeState(moment.version, moment.version, moment.commit, None)
