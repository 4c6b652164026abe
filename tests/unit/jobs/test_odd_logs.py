"""Every job on a log of odd messages: the sound topics' rows, figures and proofs are those without the odd ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.cli.main import main
from tests.support.notebook_scripts import run_notebook
from tests.support.odd_logs import GROUP, SOUND, write_odd_and_plain, write_odd_and_plain_journal

DROPPED = {"messages": ["body_ref"], "profiles": ["run_id", "lake_checksum"], "topic_minutes": ["run_id"], "edges": []}
"""Columns that differ from run to run, or with the bodies of other topics."""
OF_A_RUN = {"body_ref", "as_of", "segment", "time_lag_s", "share_percent"}
"""Columns of answers that differ with the time, or with the number of other messages."""
DURING = ("--from", "2023-11-14T22:00", "--to", "2023-11-14T23:00")
OFFSETS = ("--group", GROUP, "--format", "jsonl")
BY_MINUTE = ("--format", "jsonl", "--top", "0", "--by", "topic,tag", "--window", "1m")
SQL = (
    "SELECT topic, date_trunc('minute', store_timestamp) AS minute, count(*) AS n, sum(size) AS bytes FROM messages "
    "WHERE store_timestamp < '2262-01-01T00:00:00Z' GROUP BY 1, 2 ORDER BY 1, 2"
)


class Place(NamedTuple):
    """A store and its lake."""

    store: Path
    lake: Path

    def filled(self, arguments: Sequence[str], folder: Path) -> list[str]:
        """Return a command's arguments with the paths of this place, and of a folder for results."""
        names = {"store": self.store, "lake": self.lake, "out": folder / self.store.parent.name}
        return [argument.format(**names) for argument in arguments]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    """Return the odd log and the plain one, both archived."""
    folder = tmp_path_factory.mktemp("odd")
    found = [Place(store, store.parent / "lake") for store in write_odd_and_plain(folder)]
    codes = [
        main(["archive", "--store", str(store), "--lake", str(lake), "--local", "--quiet"]) for store, lake in found
    ]
    assert codes == [3, 0]  # times that no column can store, topics that are not UTF-8, and queues that skip offsets
    yield found[0], found[1]
    shutil.rmtree(folder)


def sound_rows(place: Place, table: str) -> pa.Table:
    rows = Lake(str(place.lake)).table(table).to_pyarrow_table()
    topic = "topic" if "topic" in rows.column_names else "from_topic"
    rows = rows.filter(pc.is_in(rows.column(topic), pa.array(SOUND))).drop_columns(DROPPED[table])
    keys = [(name, "ascending") for name in rows.column_names if not pa.types.is_nested(rows.schema.field(name).type)]
    return rows.sort_by(keys).combine_chunks()


@pytest.mark.parametrize("table", DROPPED)
def test_the_rows_of_sound_topics_are_those_without_odd_messages(places: tuple[Place, Place], table: str) -> None:
    odd, plain = (sound_rows(place, table) for place in places)
    assert plain.num_rows
    assert odd.equals(plain)


def answer(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> tuple[int, list[Any]]:
    """Run a job, and return its exit code and the rows of sound topics that it prints as JSON."""
    capsys.readouterr()
    code = main(arguments)
    text = capsys.readouterr().out
    lines = [json.loads(text)] if text.startswith("{\n") else [json.loads(line) for line in text.splitlines()]
    return code, [_plain(row) for row in lines if row.get("topic", SOUND[0]) in SOUND]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_A_RUN}


SAME = {
    "tps of the lake": ["tps", "--lake", "{lake}", "--format", "jsonl", "--top", "0"],
    "tps of the store": ["tps", "--store", "{store}", "--format", "jsonl", "--top", "0"],
    "lag of the lake": ["lag", "--lake", "{lake}", "--all", "--format", "jsonl"],
}
SAME_TOO = {
    "lag of the store": ["lag", "--store", "{store}", "--all", "--format", "jsonl"],
    "lag at a time": ["lag", "--lake", "{lake}", "--all", "--format", "jsonl", "--at", "2023-11-15T01:00"],
    "tps by minute": ["tps", "--lake", "{lake}", *BY_MINUTE, *DURING],
    "delayed": ["tps", "--lake", "{lake}", "--show", "hot-queues", "--format", "jsonl", "--top", "0"],
    "query": ["query", "--lake", "{lake}", "--topic", SOUND[0], "--format", "jsonl"],
    "query by key": ["query", "--lake", "{lake}", "--key", "order-10", "--body", "--format", "jsonl"],
    "sql": ["query", "--lake", "{lake}", "--format", "jsonl", "--sql", SQL],
    "grep": ["query", "--lake", "{lake}", "--grep", "body 1", "--topic", SOUND[0], "--format", "jsonl"],
    "lineage": ["lineage", "--lake", "{lake}", "--key", "order-10", "--format", "json"],
    "dead letters": ["dlq", "--lake", "{lake}", "--group", GROUP, "--format", "jsonl"],
    "offsets at a time": ["offsets", "--lake", "{lake}", *OFFSETS, "--at", "2023-11-15T01:00"],
    "offsets from a time": ["offsets", "--store", "{store}", *OFFSETS, "--consume-from", "2023-11-14T22:13:30"],
    "dump": ["dump", "{store}"],
    "replay": ["replay", "--lake", "{lake}", "--topic", SOUND[0], "--dry-run", "--format", "jsonl"],
    "replay of dead letters": ["replay", "--lake", "{lake}", "--dlq-of", GROUP, "--dry-run", "--format", "jsonl"],
    "replay of the store": ["replay", "--lake", "{out}", "--store", "{store}", "--topic", SOUND[0], "--dry-run",
                            "--format", "jsonl"],
}  # fmt: skip
"""Commands whose rows of the sound topics are the same with and without odd messages, and are there."""


@pytest.mark.parametrize(
    "arguments",
    [
        *(pytest.param(arguments, id=name) for name, arguments in SAME.items()),
        *(
            pytest.param(arguments, id=name, marks=pytest.mark.long("every job with odd messages"))
            for name, arguments in SAME_TOO.items()
        ),
    ],
)
def test_what_a_job_says_of_sound_topics_is_the_same(
    places: tuple[Place, Place], arguments: Sequence[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (odd_code, odd), (code, plain) = (answer(capsys, place.filled(arguments, tmp_path)) for place in places)
    assert plain
    assert odd == plain
    assert odd_code == code


def test_the_audit_has_its_proof(places: tuple[Place, Place]) -> None:
    store, lake = map(str, places[0])
    assert main(["audit", "--lake", lake, "--store", store, "--local", "--quiet"]) == 0


def _queue_files(folder: Path) -> dict[str, bytes]:
    """Return the files of the sound topics' queues."""
    files = (path for topic in SOUND for path in sorted((folder / "consumequeue" / topic).rglob("*")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.long("every job with odd messages")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["rebuild", "{store}", "--out", "{out}", "--local", "--quiet"], 3),
        (["rebuild", "{store}", "--out", "{out}", "--local", "--quiet", "--salvage"], 3),
        (["restore", "--lake", "{lake}", "--out", "{out}", "--broker", "a", "--quiet", "--segment-size", "1MiB"], 3),
    ],
)
def test_queues_of_sound_topics_are_rebuilt_alike(
    places: tuple[Place, Place], arguments: Sequence[str], code: int, tmp_path: Path
) -> None:
    assert [main(place.filled(arguments, tmp_path)) for place in places] == [code, 0]
    odd, plain = (_queue_files(tmp_path / name) for name in ("odd", "plain"))
    assert plain
    assert odd == plain


@pytest.mark.long("every job with odd messages")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["verify", "{store}", "--local", "--quiet", "--html", "{out}"], 3),
        (["explain", "{store}", "--topic", SOUND[0]], 0),
        (["guard", "--store", "{store}", "--lake", "{lake}"], 0),
        (["metrics", "--lake", "{lake}", "--textfile", "{out}"], 0),
        (["tps", "--lake", "{lake}", "--html", "{out}"], 0),
        (["tps", "--lake", "{lake}", "--show", "delayed"], 0),
        (["tps", "--lake", "{lake}", "--from", "9999-12-31T23:00", "--to", "9999-12-31T23:59:59"], 0),
        (["tps", "--store", "{store}", "--from", "9999-12-31T23:00"], 0),
        (["lag", "--lake", "{lake}", "--all", "--html", "{out}"], 0),
        (["lag", "--store", "{store}", "--all", "--html", "{out}"], 0),
        (["lineage", "--lake", "{lake}", "--topics", *DURING, "--html", "{out}"], 0),
        (["lineage", "--lake", "{lake}", "--key", "a"], 0),
        (["query", "--lake", "{lake}", "--limit", "1000"], 0),
        (["query", "--lake", "{lake}", "--limit", "1000", "--body", "--format", "json"], 3),  # a body is not compressed
        (["dlq", "--lake", "{lake}"], 0),
        (["dlq", "export", "--lake", "{lake}", "--out", "{out}.jsonl"], 0),
        (["snapshot", "--lake", "{lake}", "--store", "{store}"], 0),
    ],
)
def test_a_job_ends_well(places: tuple[Place, Place], arguments: Sequence[str], code: int, tmp_path: Path) -> None:
    assert main(places[0].filled(arguments, tmp_path)) == code


@pytest.mark.long("every job with odd messages")
def test_what_the_replay_notebook_says_of_sound_topics_is_the_same(places: tuple[Place, Place]) -> None:
    odd, plain = (run_notebook("replay_a_time_range", str(place.lake), "--topic", SOUND[0]) for place in places)
    assert SOUND[0] in plain
    assert odd == plain


@pytest.mark.long("every job with odd messages")
def test_evidence_of_odd_messages_is_valid(places: tuple[Place, Place], tmp_path: Path) -> None:
    key, lake = tmp_path / "evidence.pem", str(shutil.copytree(places[0].lake, tmp_path / "lake"))
    assert main(["evidence", "key", "--out", str(key), "--quiet"]) == 0
    signed = ["--lake", lake, "--store", str(places[0].store), "--local", "--quiet", "--evidence-key", str(key)]
    assert main(["archive", *signed]) == 0
    assert main(["audit", *signed]) == 0
    assert main(["evidence", "verify", "--lake", lake, "--public-key", f"{key}.pub", "--quiet"]) == 0


@pytest.mark.long("every job with odd messages")
def test_a_store_is_shipped_as_it_is(places: tuple[Place, Place], tmp_path: Path) -> None:
    store = str(places[0].store)
    command = [sys.executable, "-P", "-m", "commitlake.jobs.cli.main", "ship", "--store", store, "--once", "--quiet"]
    copy, lake = tmp_path / "a", tmp_path / "lake"
    subprocess.run([*command, "--to", str(copy)], check=True, timeout=300)
    assert main(["archive", "--store", str(copy), "--lake", str(lake), "--local", "--quiet"]) == 3
    assert sound_rows(Place(copy, lake), "messages").equals(sound_rows(places[1], "messages"))


@pytest.mark.long("every job with odd messages")
def test_a_lake_that_grew_and_was_maintained_and_erased_from_is_proven(
    places: tuple[Place, Place], tmp_path: Path
) -> None:
    store, lake = Path(shutil.copytree(places[0].store, tmp_path / "a")), tmp_path / "lake"
    (segment,) = (store / "commitlog").iterdir()
    log = segment.read_bytes()
    half = 0
    while half < len(log.rstrip(b"\0")) // 2:
        half += int.from_bytes(log[half : half + 4], "big")
    run = ["--lake", str(lake), "--local", "--quiet"]
    codes = []
    for data in (log[:half].ljust(len(log), b"\0"), log):
        segment.write_bytes(data)
        codes.append(main(["archive", "--store", str(store), *run]))
    assert codes == [3, 0]  # all that no column can store, and all jumps, are in the first half
    assert main(["maintain", *run]) == 0
    assert main(["audit", "--store", str(store), *run]) == 0
    for key in ("a", "order-11"):
        erased = main(["erase", "--key", key, "--reason", "test", "--yes", *run])
        assert erased == 3  # keys of inner batches are not known, and some odd messages say that they are such
        assert main(["audit", "--store", str(store), *run]) == 0
    assert sound_rows(Place(store, lake), "messages").num_rows == sound_rows(places[1], "messages").num_rows


@pytest.mark.long("every job with odd messages")
def test_odd_messages_of_jmq_change_nothing_of_sound_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd, plain = (Place(store, store.parent / "lake") for store in write_odd_and_plain_journal(tmp_path))
    for place, code in ((odd, 3), (plain, 0)):
        run = ["--store", str(place.store), "--lake", str(place.lake), "--local", "--quiet"]
        assert main(["archive", *run]) == code
        assert main(["audit", *run]) == 0
    for table in DROPPED.keys() - {"edges"}:
        assert sound_rows(odd, table).equals(sound_rows(plain, table))
    for name in ("tps of the lake", "tps of the store", "query", "sql", "dump"):
        commands = {**SAME, **SAME_TOO}[name]
        assert answer(capsys, odd.filled(commands, tmp_path)) == answer(capsys, plain.filled(commands, tmp_path)), name
    for command in (["verify", "{store}", "--local"], ["rebuild", "{store}", "--out", "{out}", "--local"]):
        assert main([*odd.filled(command, tmp_path / "results"), "--quiet"]) in (0, 3)
