"""Tests of dump on copies in an object store: queues and indexes are printed as those of the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.jobs.dump import command as dump
from commitlake.schemas.errors import ExitCode
from tests.support.indexed_stores import RARE, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.remote_copies import COPY, serve_copies, ship_copy

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs dump, and returns exit code, lines, and standard error."""

    def run_dump(store: Path | str, *arguments: str) -> tuple[int, list[str], str]:
        code = dump.main([str(store), *arguments])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run_dump


@pytest.fixture(params=["rocketmq", "jmq"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of each format, to be shipped."""
    serve_copies(tmp_path / "remote", monkeypatch)
    write = write_indexed_store if request.param == "rocketmq" else write_jmq_store
    return write(tmp_path / "store", count=400)


@pytest.mark.parametrize("arguments", [(), ("--topic", RARE, "--queue", "0")])
def test_entries_of_queues_equal_those_of_the_store(
    store: Path, tmp_path: Path, run: Run, arguments: tuple[str, ...]
) -> None:
    ship_copy(store, tmp_path / "remote")
    found = run(store, "--consumequeue", *arguments)
    assert run(COPY, "--consumequeue", *arguments) == found
    assert found[0] == ExitCode.OK
    assert found[1]


def test_a_topic_without_queues_is_a_warning_that_names_the_topics(store: Path, tmp_path: Path, run: Run) -> None:
    ship_copy(store, tmp_path / "remote")
    code, lines, err = run(COPY, "--consumequeue", "--topic", "topic-9")
    assert (code, lines) == (ExitCode.OK, [])
    assert "no queue of a topic 'topic-9'" in err
    assert "topics with queues: rare, topic-0, topic-1, topic-2" in err


def test_files_that_are_missing_or_short_in_a_copy_are_errors(store: Path, tmp_path: Path, run: Run) -> None:
    ship_copy(store, tmp_path / "remote")
    folder = "consumequeue" if (store / "consumequeue").is_dir() else "queue"
    path = next((tmp_path / "remote" / "copy" / folder / "topic-0" / "0").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    code, _, err = run(COPY, "--consumequeue")
    assert code == ExitCode.USAGE
    assert f"{COPY}/{folder}/topic-0/0/{path.name}: expected " in err
    path.unlink()
    code, _, err = run(COPY, "--consumequeue")
    assert code == ExitCode.USAGE
    assert "found no such object: the copy was changed" in err


def test_a_copy_of_the_log_alone_has_no_queues(store: Path, tmp_path: Path, run: Run) -> None:
    for folder in ("consumequeue", "queue"):
        if (store / folder).is_dir():
            (store / folder).rename(tmp_path / "elsewhere")
    ship_copy(store, tmp_path / "remote")
    code, _, err = run(COPY, "--consumequeue")
    assert code == ExitCode.USAGE
    assert f"{COPY} has no folder " in err


@pytest.mark.parametrize("store", ["rocketmq"], indirect=True)
def test_entries_of_the_index_equal_those_of_the_store_without_its_newest_file(
    store: Path, tmp_path: Path, run: Run
) -> None:
    ship_copy(store, tmp_path / "remote")
    _, lines, err = run(COPY, "--index")
    newest = max((store / "index").iterdir())
    assert lines == [line for line in run(store, "--index")[1] if newest.name not in line]
    assert lines
    assert "note: a copy has all IndexFiles but the broker's newest one" in err
    path = min((tmp_path / "remote" / "copy" / "index").iterdir())
    path.unlink()
    code, _, err = run(COPY, "--index")
    assert code == ExitCode.USAGE
    assert f"{COPY}/index/{path.name}: expected {newest.stat().st_size} bytes, found no such object" in err


@pytest.mark.parametrize("store", ["rocketmq"], indirect=True)
def test_index_of_a_copy_without_index_files_has_no_entries_unless_it_has_no_queues_either(
    store: Path, tmp_path: Path, run: Run
) -> None:
    for path in sorted((store / "index").iterdir())[:-1]:
        path.unlink()
    ship_copy(store, tmp_path / "remote")
    code, lines, err = run(COPY, "--index")
    assert (code, lines) == (ExitCode.OK, [])
    assert "note: a copy has all IndexFiles but the broker's newest one" in err
    (store / "consumequeue").rename(tmp_path / "elsewhere")
    ship_copy(store, tmp_path / "remote")
    code, _, err = run(COPY, "--index")
    assert code == ExitCode.USAGE
    assert f"{COPY} has no folder 'index'" in err
