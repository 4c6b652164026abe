"""A last record with zeros in its properties: no checksum covers them, and a broker that starts keeps the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.snapshots import LogTailKind, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.rebuild.command import main as rebuild
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport, verify_stores
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.consumequeue import parse_entry
from tests.support.indexed_stores import OPTIONS, Clock
from tests.support.store_damages import ROCKETMQ


@pytest.fixture
def store(store: Path) -> Path:
    """A store whose last record ends in 16 zeros."""
    last = ROCKETMQ.messages(store)[-1]
    ROCKETMQ.patch_log(store, last.physical_offset + last.size - 16, bytes(16))
    return store


def verify(root: Path) -> StoreReport:
    (report,) = verify_stores(find_stores(str(root), "a", formats=COMMITLOGS), VerifyOptions())
    return report


def test_verify_counts_the_record_in_a_stopped_store(store: Path) -> None:
    report = verify(store)
    assert report.records == len(ROCKETMQ.messages(store))
    assert not {code for code in report.findings.codes if code.startswith("log_")}


def test_a_reader_leaves_out_the_record_while_a_broker_may_be_writing(store: Path) -> None:
    (store / "checkpoint").unlink()  # it would prove that the broker had the whole record
    (found,) = find_stores(str(store), "a", formats=COMMITLOGS)
    assert take_snapshot([found]).ranges["a"].tail is LogTailKind.TORN
    assert take_snapshot([found], is_broker_stopped=True).ranges["a"].tail is LogTailKind.UNWRITTEN


def test_verify_leaves_out_the_record_while_a_broker_has_the_store_open(store: Path) -> None:
    stopped = verify(store).records
    with MessageStore.open(store, OPTIONS, clock=Clock()) as opened:
        assert opened.max_physical_offset > 0
        live = verify(store)
    assert live.is_live
    assert live.records == stopped - 1


@pytest.mark.parametrize("where", [["--in-place"], ["--out", "{out}"], ["--out", "{out}", "--salvage"]])
def test_a_rebuild_and_a_salvage_keep_the_record(store: Path, tmp_path: Path, where: list[str]) -> None:
    out = tmp_path / "out"
    stopped = verify(store).records
    arguments = [text.replace("{out}", str(out)) for text in where]
    assert rebuild([str(store), "--local", "--quiet", *arguments]) == ExitCode.OK
    if "--salvage" in where:
        assert verify(out).records == stopped
    made = store if "--in-place" in where else out
    last = ROCKETMQ.messages(store)[-1]
    number = last.queue_offset
    queue = (last.topic, last.queue_id)
    path, position = ROCKETMQ.queue_file(made, number, queue)
    assert parse_entry(path.read_bytes(), position).physical_offset == last.physical_offset
