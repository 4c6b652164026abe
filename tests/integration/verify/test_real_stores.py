"""Stores of real brokers, stopped and running: verify reports real faults and no others."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.runtime.local_runner import ProcessRunner
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import StoreReport, verify_stores
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS, parse_delay_levels
from tests.servers.java_programs import produce_every_kind
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore
from tests.servers.rocketmq import StartBroker

LEVELS = parse_delay_levels(RECORDING_OPTIONS.message_delay_level or DEFAULT_DELAY_LEVELS)


def verify(root: Path, processes: int = 1) -> StoreReport:
    (report,) = verify_stores(
        find_stores(str(root), "a", formats=COMMITLOGS), VerifyOptions(LEVELS), runner=ProcessRunner(processes)
    )
    return report


def test_a_stopped_brokers_store_has_no_finding(recorded_store: RecordedStore) -> None:
    report = verify(recorded_store.store)
    assert dict(report.findings.counts) == {}, list(report.findings)
    assert report.records == len(recorded_store.decoded)
    assert report.index_files > 1


def test_processes_find_the_same(recorded_store: RecordedStore, tmp_path: Path) -> None:
    root = recorded_store.copy_to(tmp_path / "store")
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    counts = {"index_absent": 1, "checkpoint_missing": 1}
    assert verify(root, 1).findings.counts == verify(root, 2).findings.counts == counts


def test_other_delay_levels_are_a_finding(recorded_store: RecordedStore) -> None:
    (report,) = verify_stores(find_stores(str(recorded_store.store), "a", formats=COMMITLOGS), VerifyOptions())
    assert set(report.findings.codes) == {"delay_level_not_default"}


@pytest.mark.long("a setting that is rarely used, with a broker of its own; tag codes have unit tests")
def test_addresses_in_a_consume_queue_ext_are_not_wrong_tag_codes(
    rocketmq_version: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    options = replace(RECORDING_OPTIONS, extra={"enableConsumeQueueExt": "true"})
    rocketmq = start_broker(rocketmq_version, store, options)
    produce_every_kind(rocketmq, "plain", "keys", "delay")
    rocketmq.stop()
    assert verify(store).findings.counts == {}
    shutil.rmtree(store / "consumequeue_ext")
    report = verify(store)
    assert set(report.findings.codes) == {"queue_wrong_tags"}
    assert all(int(finding.found.rpartition(" ")[2]) < -(1 << 31) for finding in report.findings)


@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.long("the killed one is harder"))])
def test_a_running_and_a_killed_broker_give_no_false_finding(
    rocketmq_version: str, start_broker: StartBroker, tmp_path: Path, stopped: bool
) -> None:
    store = tmp_path / "store"
    rocketmq = start_broker(rocketmq_version, store, RECORDING_OPTIONS)
    produce_every_kind(rocketmq, "plain", "keys", "batch", "delay", "volume")
    if stopped:
        rocketmq.kill()
    report = verify(store)
    allowed = {"queue_not_dispatched", "index_not_dispatched", *(("abort_present", "log_torn_tail") if stopped else ())}
    assert report.findings.codes <= allowed, list(report.findings)
    assert report.is_live != stopped
    assert report.records > 100
