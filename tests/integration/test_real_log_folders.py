"""A real broker that divides its log between two folders (RIP-7): everything in them is one store."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import commitlake
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.settings_files import use_settings_file
from commitlake.connectors.reading.stores import find_stores
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from tests.servers.java_programs import dump_store, produce_every_kind
from tests.servers.recording import RECORDING_OPTIONS, RecordedStore
from tests.servers.rocketmq import StartBroker
from tests.support.lakes import archive_store
from tests.support.served_stores import LEVELS, assert_serves, business, ipv4


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
