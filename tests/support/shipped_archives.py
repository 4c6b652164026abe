"""Comparisons of a store and its copy in an object store: archives, findings of verify, and bytes of large segments."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from commitlake.connectors.reading.files.read_ahead import ReadAhead
from commitlake.connectors.reading.files.segment_files import OpenSegment, RemoteSegment
from commitlake.jobs.archive import command as archive
from commitlake.jobs.dump import command as dump
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.ship import command as ship
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segments import segment_name
from tests.support.archived import TABLES, rows_of
from tests.support.indexed_stores import write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.logs import closed_segment, new_message, open_segment, write_store
from tests.support.rebuilt_stores import files_of
from tests.support.store_damages import DAMAGES
from tests.support.store_formats import ROCKETMQ, StoreFormat

_SEGMENT_BYTES, _WINDOW_BYTES = 32 << 20, 4 << 20


def check_copy_is_archived_alike(copy: str, folder: Path, layout: StoreFormat) -> None:
    """Check that a copy and its store give the same tables, while the store grows.

    Args:
        copy: place of the copy.
        folder: an empty folder, for the store and the lakes.
        layout: format of the store.
    """
    store = layout.open(folder / "store")
    for part in range(2):  # the copy is archived as it grows
        layout.fill(store, 30, 30 * part)
        store.flush()
        layout.note_progress(store)
        assert ship.main(["--store", str(folder / "store"), "--broker", "b", "--to", copy, "--once"]) == 0
        for place, lake in ((str(folder / "store"), "of-store"), (copy, "of-copy")):
            assert archive.main(["--store", place, "--broker", "b", "--lake", str(folder / lake), "--local"]) == 0
    store.close()
    assert len(rows_of(folder / "of-store", "messages")) == 60
    for table in TABLES:
        found = rows_of(folder / "of-copy", table)
        expected = rows_of(folder / "of-store", table)
        if table == "store_config":  # about the size of IndexFiles, because the newest one is not copied
            expected = [row for row in expected if not str(row["name"]).startswith("index_")]
        assert found == expected, table


def check_copy_is_verified_alike(
    copy: str, folder: Path, layout: StoreFormat, capsys: pytest.CaptureFixture[str], processes: int = 1
) -> None:
    """Check that a copy of a damaged store has the same findings, except the note on the IndexFile that is not copied.

    Args:
        copy: place of the copy.
        folder: an empty folder, for the store.
        layout: format of the store.
        capsys: captures the output.
        processes: number of processes that read the copy.
    """
    damages = DAMAGES[layout.name]
    write = write_indexed_store if layout is ROCKETMQ else write_jmq_store
    store = write(folder / "store")
    damages.patch_field(store, damages.record(store), "body_crc", 1)
    damages.clear_entry(store, 5)
    damages.queue_file(store, damages.queue_file_entries)[0].unlink()
    assert ship.main(["--store", str(store), "--broker", "b", "--to", copy, "--once"]) == 0
    found = []
    for root in (str(store), copy):
        capsys.readouterr()
        options = ["--broker", "b", "--local", "--processes", str(processes), "--format", "json"]
        assert verify.main([root, *options]) == ExitCode.DAMAGE
        (report,) = json.loads(capsys.readouterr().out)["rows"]
        assert report.pop("root") == root
        found.append(report)
    of_store, of_copy = found
    assert {"log_bad_crc", "queue_missing_entry", "queue_missing_file"} <= of_store["counts"].keys()
    if layout is ROCKETMQ:
        assert of_copy["counts"].pop("index_not_copied") == 1
        assert of_copy["findings"].pop()["code"] == "index_not_copied"
        assert of_copy.pop("index_files") + 1 == of_store.pop("index_files")
    for finding in (*of_copy["findings"], *of_store["findings"]):  # what to do depends on the place
        assert finding.pop("action")
        assert finding.pop("commands") is not None
    assert of_copy == of_store


def check_fetched_copy_is_read_alike(copy: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that `dump` and `rebuild` give the same for a copy and for the folder into which it is fetched.

    Args:
        copy: place of the copy.
        folder: an empty folder, for the store and the outputs.
        capsys: captures the output.
    """
    store, fetched = ROCKETMQ.write(folder / "broker-a" / "store", 60), folder / "fetched"
    assert ship.main(["--store", str(store), "--to", copy, "--once"]) == 0
    capsys.readouterr()
    assert rebuild.main([copy, "--in-place", "--local"]) == ExitCode.USAGE
    assert f"commitlake ship --store {copy} --to FOLDER --once" in capsys.readouterr().err
    assert ship.main(["--store", copy, "--to", str(fetched), "--once"]) == 0
    for name in ("commitlog", "config"):
        for path in (fetched / name).iterdir():
            assert path.read_bytes() == (store / name / path.name).read_bytes()
    printed, rebuilt = [], []
    for number, place in enumerate((copy, str(fetched))):
        capsys.readouterr()
        assert dump.main([place, "--consumequeue", "--topic", "orders"]) == 0
        printed.append(capsys.readouterr().out)
        out = folder / f"rebuilt-{number}"
        assert rebuild.main([place, "--out", str(out), "--processes", "1", "--local", "--quiet"]) == 0
        rebuilt.append({name: data for name, data in files_of(out).items() if not name.startswith((".", "index"))})
    assert printed[0] == printed[1] != ""
    assert rebuilt[0] == rebuilt[1] != {}


def check_large_segments_are_read_alike(copy: str, folder: Path) -> None:
    """Check the bytes of a closed segment and of an open one, which are read in parallel ranges.

    Args:
        copy: place of the copy.
        folder: an empty folder, for the store.
    """
    chance = random.Random(8)
    large = [new_message(number, body=chance.randbytes(1 << 20)) for number in range(30)]
    closed = closed_segment(large, _SEGMENT_BYTES)
    written = {0: closed, _SEGMENT_BYTES: open_segment(large[:20], _SEGMENT_BYTES, _SEGMENT_BYTES)}
    store = write_store(folder / "store", list(written.items()))
    assert ship.main(["--store", str(store), "--broker", "b", "--to", copy, "--once"]) == 0
    for base_offset, expected in written.items():
        window = np.empty(_WINDOW_BYTES, np.uint8)
        with OpenSegment(f"{copy}/commitlog/{segment_name(base_offset)}") as file:
            assert isinstance(file, RemoteSegment)
            ahead = ReadAhead(file)
            for start in range(0, _SEGMENT_BYTES, _WINDOW_BYTES - 1000):
                data = expected[start : start + _WINDOW_BYTES]
                assert ahead.read_into(window[: len(data)], start, _SEGMENT_BYTES) == len(data)
                assert window[: len(data)].tobytes() == data, start
