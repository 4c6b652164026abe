"""Tests of the command `rebuild`: written files, messages, and exit codes."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.jobs.rebuild.command import main
from commitlake.jobs.verify import command as verify
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.safe_store_files import rename_file
from tests.support.indexed_stores import OPTIONS, SEGMENT_BYTES, Clock, message, write_indexed_store
from tests.support.jmq_stores import FILE_BYTES, write_jmq_store

LOCAL = ("--local", "--threads", "1")
HOLDER = """
import sys
from commitlake.broker_lite.stores.engine.store_lock import StoreLock
from pathlib import Path
lock = StoreLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for reading only."""
    return write_indexed_store(tmp_path_factory.mktemp("rebuilt") / "broker-a" / "store", 200)


@pytest.fixture
def store(intact: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(intact, tmp_path / "broker-b" / "store"))


def damage(store: Path) -> None:
    """Flip a bit in the second record's body."""
    path = store / "commitlog" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[int.from_bytes(data[:4], "big") + 90] ^= 1
    path.write_bytes(data)


def test_a_store_is_rebuilt_into_a_folder(intact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(intact), "--out", str(tmp_path / "out"), *LOCAL]) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "200 records" in printed.err
    assert "200 entries of 12 queues, 800 keys in 5 index files" in printed.err
    path = Path("consumequeue") / "rare" / "0" / segment_name(0)
    assert (tmp_path / "out" / path).read_bytes() == (intact / path).read_bytes()


def test_quiet_prints_nothing(intact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(intact), "--out", str(tmp_path / "out"), *LOCAL, "--quiet"]) == ExitCode.OK
    assert capsys.readouterr() == ("", "")


def test_topics_can_be_selected(intact: Path, tmp_path: Path) -> None:
    arguments = ["--topic", "rare", "--topic", "topic-1", *LOCAL]
    assert main([str(intact), "--out", str(tmp_path / "out"), *arguments]) == ExitCode.OK
    assert sorted(path.name for path in (tmp_path / "out" / "consumequeue").iterdir()) == ["rare", "topic-1"]


def test_sizes_can_be_set(intact: Path, tmp_path: Path) -> None:
    sizes = ["--queue-file-size", "400", "--index-slots", "10", "--index-entries", "40", "--index-tags", "no"]
    assert main([str(intact), "--out", str(tmp_path / "out"), *LOCAL, *sizes]) == ExitCode.OK
    assert {path.stat().st_size for path in (tmp_path / "out" / "index").iterdir()} == {40 + 4 * 10 + 20 * 40}
    assert {path.stat().st_size for path in (tmp_path / "out" / "consumequeue").rglob("0*") if path.is_file()} >= {400}


def test_a_store_is_rebuilt_in_place(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(store / "consumequeue" / "topic-1")
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    assert "kept" in capsys.readouterr().err
    assert (store / "consumequeue" / "topic-1").is_dir()
    assert len(list(store.glob("consumequeue.old-*"))) == len(list(store.glob("index.old-*"))) == 1
    assert verify.main([str(store), "--local", "--processes", "1", "--quiet"]) == ExitCode.OK


def test_a_store_that_a_process_has_locked_is_refused(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", HOLDER, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = sorted(store.rglob("*"))
        assert main([str(store), "--in-place", *LOCAL]) == ExitCode.REFUSED
        assert sorted(store.rglob("*")) == before
        holder.communicate("")
    assert "stop the broker, or give --out" in capsys.readouterr().err


def test_a_damaged_log_ends_with_exit_code_3_and_advice(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(store)
    assert main([str(store), "--out", str(tmp_path / "out"), *LOCAL]) == ExitCode.DAMAGE
    assert "1 range of the log" in (printed := capsys.readouterr().err)
    assert "--salvage writes one that it reads to the end" in printed


def test_a_damaged_log_is_not_rebuilt_in_place(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (store / "commitlog" / segment_name(0)).read_bytes()
    damage(store)
    for _ in range(2):  # files left by the first attempt do not prevent the second one
        assert main([str(store), "--in-place", *LOCAL]) == ExitCode.DAMAGE
        assert "nothing was replaced: log_bad_crc" in (printed := capsys.readouterr().err)
        assert "--salvage with --out writes a clean one" in printed
        assert list(store.glob("*.old-*")) == []
    (store / "commitlog" / segment_name(0)).write_bytes(whole)
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK


class StoppedError(BaseException):
    """Error that interrupts a run as a signal would."""


def stop(*_: object, **__: object) -> None:
    raise StoppedError


def interrupted(store: Path, monkeypatch: pytest.MonkeyPatch, where: str, *more: str) -> None:
    """Run in place, and stop at the first call of a function."""
    with monkeypatch.context() as patched:
        patched.setattr(where, stop)
        with pytest.raises(StoppedError):
            main([str(store), "--in-place", *LOCAL, *more])


def let_a_broker_write(store: Path, count: int) -> None:
    chance = random.Random(1)
    with MessageStore.open(store, OPTIONS, clock=Clock()) as opened:
        for number in range(1000, 1000 + count):
            opened.put(message(number, chance))


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(
    "where",
    [
        "run._run_second_pass",
        "store_replacement.verify_stores",
        "store_replacement.sync_folder",
        "store_replacement.rename_file",
    ],
)
def test_records_written_after_an_interrupted_run_are_in_the_next_rebuild(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    interrupted(store, monkeypatch, f"commitlake.pipelines.rebuild.{where}")
    let_a_broker_write(store, 30)
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    assert "230 records" in capsys.readouterr().err
    assert verify.main([str(store), "--local", "--processes", "1", "--quiet"]) == ExitCode.OK
    assert not (store / ".rebuilt-in-place").exists()


def test_folders_that_a_broker_made_between_two_renames_are_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def stop_at_the_new(path: Path, target: Path, *, trusted_root: Path) -> None:
        if path.parent.name == ".rebuilt-in-place":
            raise StoppedError
        rename_file(path, target, trusted_root=trusted_root)

    with monkeypatch.context() as patched:
        patched.setattr("commitlake.pipelines.rebuild.store_replacement.rename_file", stop_at_the_new)
        with pytest.raises(StoppedError):
            main([str(store), "--in-place", *LOCAL])
    assert not (store / "consumequeue").exists()
    let_a_broker_write(store, 0)
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    assert sorted(len(list(path.glob("*/*/*"))) > 0 for path in store.glob("consumequeue.old-*")) == [True, True]
    assert verify.main([str(store), "--local", "--processes", "1", "--quiet"]) == ExitCode.OK


@pytest.mark.parametrize("place", [".", "commitlog/new"])
def test_an_output_folder_inside_the_store_is_refused(
    store: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    (store / "checkpoint").unlink()
    before = sorted(store.rglob("*"))
    assert main([str(store), "--out", str(store / place), *LOCAL]) == ExitCode.USAGE
    assert "--in-place takes the store's lock" in capsys.readouterr().err
    assert sorted(store.rglob("*")) == before


def test_a_full_disk_is_reported_and_the_next_run_succeeds(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("commitlake.pipelines.rebuild.queue_building.QueueFolder._write_to_file", refuse)
        assert main([str(store), "--in-place", *LOCAL]) == ExitCode.FAILED
    assert (
        "No space left on device\n  the store has lost nothing; fix the problem and run again"
        in capsys.readouterr().err
    )
    assert list(store.glob("*.old-*")) == []
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK


def test_abort_is_moved_only_if_everything_was_rebuilt(store: Path) -> None:
    (store / "abort").write_bytes(b"4711")
    assert main([str(store), "--in-place", "--topic", "rare", *LOCAL]) == ExitCode.OK
    assert (store / "abort").exists()  # the index is still the crashed broker's
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    assert not (store / "abort").exists()
    assert [path.read_bytes() for path in store.glob("abort.old-*")] == [b"4711"]


def test_abort_stays_if_there_are_compacted_topics(store: Path) -> None:
    (store / "abort").touch()
    (store / "compaction" / "compactionLog" / "orders").mkdir(parents=True)
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    assert (store / "abort").exists()


def test_a_damaged_queue_without_records_is_not_reported_as_a_damaged_log(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "consumequeue" / "lonely" / "0" / segment_name(0)
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(100))
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.DAMAGE
    printed = capsys.readouterr().err
    assert "nothing was replaced: queue_file_size at consumequeue/lonely/0" in printed
    assert "move damaged ones elsewhere" in printed
    assert "salvage" not in printed


def test_a_run_with_other_options_first_finishes_the_interrupted_one(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(store, monkeypatch, "commitlake.pipelines.rebuild.store_replacement.sync_folder", "--topic", "rare")
    shutil.rmtree(store / "consumequeue" / "topic-1")
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.OK
    assert verify.main([str(store), "--local", "--processes", "1", "--quiet"]) == ExitCode.OK


def test_a_record_with_an_impossible_topic_is_left_out_and_reported(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "commitlog" / segment_name(0)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\x07topic-1", b"\x07top\0c-1", 1))
    shutil.rmtree(store / "consumequeue" / "rare")
    assert main([str(store), "--in-place", *LOCAL]) == ExitCode.DAMAGE
    assert "1 entry is left out: no folder can have their topics' names" in capsys.readouterr().err
    assert (store / "consumequeue" / "rare").is_dir()


def test_salvage_makes_a_store_without_damage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store)
    (store / "commitlog" / segment_name(SEGMENT_BYTES)).unlink()
    out = tmp_path / "clean"
    assert main([str(store), "--out", str(out), "--salvage", *LOCAL]) == ExitCode.DAMAGE
    assert "2 damaged ranges" in capsys.readouterr().err
    rows = [json.loads(line) for line in (out / "salvage-damages.jsonl").read_text().splitlines()]
    assert [(row["fault"], row["became"]) for row in rows] == [("body_crc", "filler"), ("missing_segment", "blank")]
    verify.main([str(out), "--local", "--processes", "1", "--output", "json"])
    (report,) = json.loads(capsys.readouterr().out)["rows"]
    assert not any(code.startswith(("log_bad", "log_hole", "log_missing", "index_")) for code in report["counts"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["/nowhere", "--out", "{out}", "--local"], "does not exist"),
        (["{store}", "--in-place", "--salvage"], "--salvage and --in-place cannot be used together"),
        (["{store}", "--out", "{out}", "--salvage", "--topic", "rare"], "--salvage and --topic cannot be"),
        (["{store}", "--out", "{store}", "--local"], "is the folder of the store"),
        (["{store}", "--out", "{store}", "--salvage", "--local"], "is the folder of the store"),
        (["{store}", "--out", "{store}/index", "--local"], "is the folder of the store or inside it"),
        (["{store}", "--out", "{store}/config/x", "--local"], "is the folder of the store or inside it"),
        (["{store}", "--out", "{out}", "--local", "--queue-file-size", "30"], "expected a multiple of 20"),
    ],
)
def test_wrong_usage_is_reported(
    intact: Path, tmp_path: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [each.format(store=intact, out=tmp_path / "out") for each in arguments]
    assert main(given) == ExitCode.USAGE
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--delay-levels=soon"], ["--threads=0"], ["--index-tags=maybe"], ["--out=x", "--in-place"], []]
)
def test_a_wrong_value_is_refused(intact: Path, options: list[str]) -> None:
    where = [] if not options or len(options) > 1 else ["--out=x"]
    with pytest.raises(SystemExit) as ended:
        main([str(intact), *options, *where])
    assert ended.value.code == ExitCode.USAGE


@pytest.fixture
def jmq(tmp_path: Path) -> Path:
    """A JMQ store."""
    return write_jmq_store(tmp_path / "broker-j" / "store", 200)


def test_a_jmq_store_is_found_by_its_journal(jmq: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main([str(jmq), "--out", str(out), *LOCAL]) == ExitCode.OK
    printed = capsys.readouterr().err
    assert "200 entries of 15 queues; in" in printed
    for path in (jmq / "queue").rglob("0*"):
        if path.is_file():
            assert (out / path.relative_to(jmq)).read_bytes() == path.read_bytes()


def test_a_jmq_store_is_rebuilt_in_place(jmq: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(jmq / "queue" / "topic-1")
    assert main([str(jmq), "--in-place", *LOCAL]) == ExitCode.OK
    assert len(list(jmq.glob("queue.old-*"))) == len(list(jmq.glob("checkpoint.old-*"))) == 1
    assert verify.main([str(jmq), "--local", "--processes", "1", "--quiet"]) == ExitCode.OK
    assert capsys.readouterr().out == ""


def test_messages_missing_in_a_damaged_journal_are_reported(
    jmq: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = jmq / "journal" / segment_name(FILE_BYTES)
    data = bytearray(path.read_bytes())
    data[62] ^= 1  # a bit of the first record's CRC
    path.write_bytes(data)
    assert main([str(jmq), "--out", str(tmp_path / "out"), *LOCAL]) == ExitCode.DAMAGE
    printed = capsys.readouterr().err
    assert "1 range of the log is damaged, 297 B: a broker skips them" in printed
    assert "1 message is missing in the journal: entries of size 0 keep their queue offsets" in printed


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--salvage"], "a JMQ broker skips damaged parts of its journal"),
        (["--index-slots", "7"], "--index-slots has no effect: a JMQ store has no IndexFiles"),
        (["--delay-levels", "1s 5s"], "a JMQ store has no index and no delay levels"),
        (["--queue-file-size", "40"], "expected a multiple of 22"),
    ],
)
def test_options_that_do_not_apply_to_a_jmq_store_are_refused(
    jmq: Path, tmp_path: Path, options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(jmq), "--out", str(tmp_path / "out"), *LOCAL, *options]) == ExitCode.USAGE
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
