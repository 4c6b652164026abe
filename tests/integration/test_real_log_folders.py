"""Logs of real brokers in several folders: divided between two (RIP-7), and of DLedger after a plain log."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import commitlake
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.settings_files import use_settings_file
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.rebuild.command import main as rebuild
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from commitlake.schemas.errors import ExitCode
from tests.servers.java_programs import consume_all, dump_store, produce_every_kind
from tests.servers.process import free_ports
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore
from tests.servers.rocketmq import SMALL_FILES, StartBroker
from tests.support.lakes import archive_store
from tests.support.served_stores import LEVELS, assert_serves, business, files_of, ipv4


def test_every_record_of_both_folders_is_archived(
    recorded_store: RecordedStore, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = recorded_store.copy_to(tmp_path / "store")
    own, other = root / "commitlog", tmp_path / "disk-2" / "commitlog"
    other.mkdir(parents=True)
    for path in sorted(own.iterdir())[1::2]:
        path.rename(other / path.name)
    folders = {**RECORDING_OPTIONS.extra, "storePathCommitLog": f"{own},{other}"}
    options = dataclasses.replace(RECORDING_OPTIONS, extra=folders)
    servers = start_broker(recorded_store.version, root, options, recorded_store.broker_port)
    assert_serves(servers, ipv4(business(recorded_store.decoded)))  # so it is a log in two folders for a broker, too
    produce_every_kind(servers, "volume", "big", "keys")
    servers.stop_broker()
    assert len(list(own.iterdir())) > 1
    assert len(list(other.iterdir())) > 1
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    shutil.copytree(other, whole / "commitlog", dirs_exist_ok=True)
    expected = [row["physical_offset"] for row in dump_store(recorded_store.version, whole)]
    assert len(expected) > len(recorded_store.decoded)
    with use_settings_file(str(servers.folder / "broker.conf")):
        lake = Lake(str(tmp_path / "lake"))
        archive_store(root, lake, "b")
        (report,) = verify_stores(find_stores(str(root), "b", formats=COMMITLOGS), VerifyOptions(LEVELS))
    archived = commitlake.open(lake.root).messages(columns=["physical_offset"]).column(0).to_pylist()
    assert sorted(archived) == expected
    assert dict(report.findings.counts) == {}, list(report.findings)


def test_every_message_of_dledger_is_archived_after_those_of_a_plain_log(
    rocketmq_version: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    root = tmp_path / "broker-a" / "store"
    servers = start_broker(rocketmq_version, root, SMALL_FILES)
    sent = produce_every_kind(servers, "volume", "keys", "tags")
    servers.stop_broker()
    peers = {"dLegerGroup": "broker-a", "dLegerPeers": f"n0-127.0.0.1:{free_ports(1)}", "dLegerSelfId": "n0"}
    options = dataclasses.replace(SMALL_FILES, extra={"enableDLegerCommitLog": True, **peers})
    servers = start_broker(rocketmq_version, root, options)
    sent += produce_every_kind(servers, "volume", "keys", "tags", "batch", "zlib")
    topics = sorted({row["topic"] for row in sent})
    consumed = sorted(row["physical_offset"] for row in consume_all(servers, *topics))
    assert len(consumed) >= len(sent)
    servers.stop_broker()
    assert len(list((root / "dledger-n0" / "data").iterdir())) > 1
    lake = Lake(str(tmp_path / "lake"))
    archive_store(root, lake, "broker-a")
    rows = commitlake.open(lake.root).messages(columns=["topic", "physical_offset"]).to_pylist()
    assert sorted(row["physical_offset"] for row in rows if row["topic"] in topics) == consumed
    (report,) = verify_stores(find_stores(str(root), "broker-a", formats=COMMITLOGS), VerifyOptions())
    assert dict(report.findings.counts) == {}, list(report.findings)
    assert rebuild([str(root), "--out", str(tmp_path / "rebuilt"), "--quiet"]) == ExitCode.OK
    theirs, ours = (files_of(folder / "consumequeue") for folder in (root, tmp_path / "rebuilt"))
    assert [name for name, data in ours.items() if theirs.get(name) != data] == []
