"""Dangerous objects in a store's folder, and a canary tree that no job may change or copy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from commitlake.connectors.formats.registry import all_formats
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.schemas.layouts.segment_names import segment_name

SECRET = b"canary-9f3c-secret"
Plant = Callable[[Path, Path], None]
"""Plants an object in the folder of a store, a run or a lake; it may lead to the canary tree."""


class Canary:
    """A tree outside the store with the kinds of files that a store has; each file holds a secret.

    Attributes:
        root: the tree.
    """

    def __init__(self, store: Path, root: Path) -> None:
        self.root = Path(shutil.copytree(store, root))
        for path in (path for path in sorted(root.rglob("*")) if path.is_file()):
            with path.open("r+b") as file:
                size = path.stat().st_size
                file.seek(max(0, size - len(SECRET)))
                file.write(SECRET)
        (root / "settings").write_bytes(SECRET)
        (root / "empty").write_bytes(b"")
        (root / "secret.json").write_text(json.dumps({"offsetTable": {SECRET.decode() + "@group": {"0": 1}}}))
        self._state = dict(self.state())

    def state(self) -> Iterator[tuple[str, tuple[int, int, str]]]:
        """Yield mode, time and hash of everything in the tree."""
        for path in (self.root, *sorted(self.root.rglob("*"))):
            status = path.lstat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
            yield str(path.relative_to(self.root)), (status.st_mode, status.st_mtime_ns, digest)

    def take(self) -> None:
        """Record the present state of the tree as the expected one."""
        self._state = dict(self.state())

    def check(self) -> None:
        """Check that nothing was changed, created or deleted."""
        state = dict(self.state())
        changed = {name for name in state.keys() | self._state.keys() if state.get(name) != self._state.get(name)}
        assert not changed


def holds_secret(folder: Path) -> list[str]:
    """Return the regular files below a folder that contain the secret; links are not followed."""
    paths = [Path(parent) / name for parent, _, names in os.walk(folder) for name in names]
    files = [path for path in paths if stat.S_ISREG(path.lstat().st_mode)]
    return [str(path.relative_to(folder)) for path in files if any(SECRET in data for data in _extents(path))]


def _extents(path: Path) -> Iterator[bytes]:
    """Yield the written parts of a file; segments are mostly holes."""
    with path.open("rb") as file:
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # the rest is a hole
                return
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            yield os.pread(file.fileno(), end - start, start)


def _clear(path: Path) -> Path:
    """Remove the object at a path, of any kind."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def link(name: str, target: str) -> Plant:
    """Return a link in the place of a file or folder."""

    def plant(store: Path, canary: Path) -> None:
        _clear(store / name).symlink_to(canary / target)

    return plant


def hard_link(name: str, target: str) -> Plant:
    """Return a second name of a file of the canary tree."""

    def plant(store: Path, canary: Path) -> None:
        os.link(canary / target, _clear(store / name))

    return plant


def fifo(name: str) -> Plant:
    """Return a FIFO, which blocks any process that opens it."""

    def plant(store: Path, canary: Path) -> None:
        os.mkfifo(_clear(store / name))

    return plant


def unix_socket(name: str) -> Plant:
    """Return a socket in the place of a file."""

    def plant(store: Path, canary: Path) -> None:
        path = _clear(store / name)
        before = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is limited to 108 bytes
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        finally:
            os.chdir(before)

    return plant


def folder(name: str) -> Plant:
    """Return a folder in the place of a file, with a file in it."""

    def plant(store: Path, canary: Path) -> None:
        (_clear(store / name) / "0").mkdir(parents=True)

    return plant


def file(name: str, data: bytes = b"", size: int | None = None) -> Plant:
    """Return a file, sparse if it has a size; it replaces a folder of its name."""

    def plant(store: Path, canary: Path) -> None:
        path = _clear(store / name)
        path.write_bytes(data)
        if size is not None:
            os.truncate(path, size)

    return plant


def no_rights(name: str) -> Plant:
    """Return a file that only root can read."""

    def plant(store: Path, canary: Path) -> None:
        (store / name).chmod(0)

    return plant


def both(*plants: Plant) -> Plant:
    """Return several of these together."""

    def plant(store: Path, canary: Path) -> None:
        for each in plants:
            each(store, canary)

    return plant


def replacing(*paths: str) -> Plant:
    """Return the control file of an interrupted rebuild; `{canary}` stands for the tree's path."""

    def plant(store: Path, canary: Path) -> None:
        (found,) = find_stores(str(store), "a", formats=all_formats())
        log = take_snapshot([found]).ranges["a"]
        work = store / ".rebuilt-in-place"
        work.mkdir()
        names = [path.format(canary=canary, name=canary.name) for path in paths]
        document = {"stamp": "planted", "paths": names, "log": [log.start, log.end], "wanted": None}
        (work / ".replacing").write_text(json.dumps(document))
        # Files that `.rebuilt-in-place/../CANARY/settings` and the like would be renamed from.
        for path in (store / canary.name / "settings", work / "consumequeue" / "settings", work / "queue" / "settings"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"planted")

    return plant


NEXT_SEGMENT = "commitlog/" + segment_name(1 << 30)
QUEUE = "consumequeue/topic-0/0"
FIRST = segment_name(0)
DEEP = b"[" * 200_000
HUGE = 1 << 42

STORE_PLANTS: dict[str, Plant] = {
    "lock is a link": link("lock", "settings"),
    "lock is a link to an empty file": link("lock", "empty"),
    "lock is a link to nothing": link("lock", "made"),
    "lock is a second name": hard_link("lock", "empty"),
    "lock is a FIFO": fifo("lock"),
    "lock is a socket": unix_socket("lock"),
    "lock is a folder": folder("lock"),
    "abort is a link": link("abort", "settings"),
    "abort is a link to nothing": link("abort", "made"),
    "abort is a second name": hard_link("abort", "settings"),
    "abort is a FIFO": fifo("abort"),
    "abort is a folder": folder("abort"),
    "checkpoint is a link": link("checkpoint", "checkpoint"),
    "checkpoint is a link to nothing": link("checkpoint", "made"),
    "checkpoint is a second name": hard_link("checkpoint", "checkpoint"),
    "checkpoint is a FIFO": fifo("checkpoint"),
    "checkpoint is a folder": folder("checkpoint"),
    "checkpoint is huge": file("checkpoint", size=HUGE),
    "checkpoint may not be read": no_rights("checkpoint"),
    "config is a link": link("config", "config"),
    "config is a FIFO": fifo("config"),
    "topics.json is a link": link("config/topics.json", "config/topics.json"),
    "topics.json is a FIFO": fifo("config/topics.json"),
    "topics.json is a folder": folder("config/topics.json"),
    "topics.json is huge": file("config/topics.json", b"{}", HUGE),
    "topics.json is deep": file("config/topics.json", DEEP),
    "its .tmp is a link": link("config/topics.json.tmp", "settings"),
    "its .bak is a link": both(file("config/topics.json", b"x"), link("config/topics.json.bak", "config/topics.json")),
    "consumerOffset.json is a link": link("config/consumerOffset.json", "secret.json"),
    "consumerOffset.json is a socket": unix_socket("config/consumerOffset.json"),
    "delayOffset.json is a FIFO": fifo("config/delayOffset.json"),
    "another .json is a link": link("config/other.json", "settings"),
    "names of odd characters": both(
        file("config/new\nline\x1b[2J.json", b"{}"),
        file(os.fsdecode(b"config/\xff\xfe.json"), b"{}"),
        file("consumequeue/new\nline\x07/0/" + FIRST, bytes(320)),
        file(os.fsdecode(b"consumequeue/\xff\xfe/0/") + FIRST, bytes(320)),
        file("consumequeue/" + "n" * 255 + "/0/" + FIRST, bytes(320)),
        file(os.fsdecode(b"index/\xff\xfe")),
        file(os.fsdecode(b"commitlog/\xff\xfe\n")),
    ),
    "consumequeue is a link": link("consumequeue", "consumequeue"),
    "a topic's folder is a link": link("consumequeue/topic-0", "consumequeue/topic-1"),
    "another topic's folder is a link": link("consumequeue/other", "consumequeue/topic-1"),
    "a queue's folder is a link": link(QUEUE, "consumequeue/topic-1/1"),
    "a queue's folder is a FIFO": fifo(QUEUE),
    "a queue's file is a link": link(f"{QUEUE}/{FIRST}", f"{QUEUE}/{FIRST}"),
    "a queue's file is a second name": hard_link(f"{QUEUE}/{FIRST}", f"{QUEUE}/{FIRST}"),
    "a queue's file is a FIFO": fifo(f"{QUEUE}/{FIRST}"),
    "a queue's file is a folder": folder(f"{QUEUE}/{FIRST}"),
    "a queue's file is huge": file(f"{QUEUE}/{FIRST}", size=HUGE - HUGE % 20),
    "another queue's file is a link": link(f"consumequeue/gone/0/{FIRST}", f"{QUEUE}/{FIRST}"),
    "another queue's folder is a link": link("consumequeue/gone/0", QUEUE),
    "batchconsumequeue is a link": link("batchconsumequeue", "consumequeue"),
    "index is a link": link("index", "index"),
    "an index file is a link": link("index/20231114221320000", "settings"),
    "an index file is a FIFO": fifo("index/20231114221320000"),
    "an index file is a folder": folder("index/20231114221320000"),
    "an index file is huge": file("index/20231114221320000", size=40 + 84 * (1 << 35)),
    "commitlog is a link": link("commitlog", "commitlog"),
    "a segment is a link": link(f"commitlog/{FIRST}", f"commitlog/{FIRST}"),
    "a segment is a second name": hard_link(f"commitlog/{FIRST}", f"commitlog/{FIRST}"),
    "a segment is a FIFO": fifo(f"commitlog/{FIRST}"),
    "a segment is a socket": unix_socket(f"commitlog/{FIRST}"),
    "a segment is a folder": folder(f"commitlog/{FIRST}"),
    "a later segment is a link": link(NEXT_SEGMENT, f"commitlog/{FIRST}"),
    "a later segment is a link to nothing": link(NEXT_SEGMENT, "made"),
    "a later segment is a FIFO": fifo(NEXT_SEGMENT),
    "a stray file of the log is a FIFO": fifo("commitlog/readme"),
    "the work folder is a link": link(".rebuilt-in-place", "consumequeue"),
    "the work folder is a FIFO": fifo(".rebuilt-in-place"),
    "what is replaced is outside": replacing("../{name}/settings"),
    "what is replaced is absolute": replacing("{canary}/settings"),
    "what is replaced is the log": replacing("commitlog"),
    "what is replaced is a queue through a link": both(
        replacing("consumequeue/settings"), link("consumequeue", "consumequeue")
    ),
    "what is replaced has a NUL": replacing("consumequeue/a\0b"),
    "what replaces is a link": both(replacing("index"), link(".rebuilt-in-place/index", "index")),
    "what replaces holds a link": both(
        replacing("index"), link(".rebuilt-in-place/index/20231114221320000", "settings")
    ),
    "the control file is a link": both(replacing(), link(".rebuilt-in-place/.replacing", "settings")),
    "the control file is a FIFO": both(replacing(), fifo(".rebuilt-in-place/.replacing")),
    "the control file is deep": both(replacing(), file(".rebuilt-in-place/.replacing", DEEP)),
    "the control file is huge": both(replacing(), file(".rebuilt-in-place/.replacing", b"{", HUGE)),
    "a run's plan is a link": link(".rebuilt-in-place/.rebuild/plan.json", "settings"),
    "a run's folder is a link": link(".rebuilt-in-place/.rebuild", "consumequeue"),
    "a run's folder is a file": file(".rebuilt-in-place/.rebuild", b"x"),
    "a run's parts are a link": link(".rebuilt-in-place/.rebuild/parts", "consumequeue"),
}
"""Objects planted in a store's folder, by their description."""

JMQ_QUEUE = "queue/topic-0/0"
JMQ_PLANTS: dict[str, Plant] = {
    "lock is a link": link("lock", "settings"),
    "lock is a FIFO": fifo("lock"),
    "abort is a link to nothing": link("abort", "made"),
    "checkpoint is a link": link("checkpoint", "checkpoint"),
    "checkpoint is a second name": hard_link("checkpoint", "checkpoint"),
    "checkpoint is a FIFO": fifo("checkpoint"),
    "checkpoint is huge": file("checkpoint", size=HUGE),
    "offset is a link": link("offset", "offset"),
    "offset.json is a link": link("offset/offset.json", "secret.json"),
    "offset.json is a FIFO": fifo("offset/offset.json"),
    "offset.json is a folder": folder("offset/offset.json"),
    "offset.json is deep": file("offset/offset.json", DEEP),
    "offset.json is huge": file("offset/offset.json", b"{}", HUGE),
    "its .tmp is a link": link("offset/offset.json.tmp", "settings"),
    "its .bak is a link": both(file("offset/offset.json", b"x"), link("offset/offset.json.bak", "secret.json")),
    "consume is a link": link("consume", "queue"),
    "consume is a FIFO": fifo("consume"),
    "names of odd characters": both(
        file("queue/new\nline\x07/0/" + FIRST, bytes(352)),
        file(os.fsdecode(b"queue/\xff\xfe/0/") + FIRST, bytes(352)),
        file("queue/" + "n" * 255 + "/0/" + FIRST, bytes(352)),
        file(os.fsdecode(b"journal/\xff\xfe\n")),
        file("consume/new\nline\x1b[2J"),
    ),
    "queue is a link": link("queue", "queue"),
    "a topic's folder is a link": link("queue/topic-0", "queue/topic-1"),
    "a queue's folder is a link": link(JMQ_QUEUE, "queue/topic-1/1"),
    "a queue's folder is a FIFO": fifo(JMQ_QUEUE),
    "a queue's file is a link": link(f"{JMQ_QUEUE}/{FIRST}", f"{JMQ_QUEUE}/{FIRST}"),
    "a queue's file is a second name": hard_link(f"{JMQ_QUEUE}/{FIRST}", f"{JMQ_QUEUE}/{FIRST}"),
    "a queue's file is a FIFO": fifo(f"{JMQ_QUEUE}/{FIRST}"),
    "a queue's file is a folder": folder(f"{JMQ_QUEUE}/{FIRST}"),
    "journal is a link": link("journal", "journal"),
    "a journal file is a link": link(f"journal/{FIRST}", f"journal/{FIRST}"),
    "a journal file is a second name": hard_link(f"journal/{FIRST}", f"journal/{FIRST}"),
    "a journal file is a FIFO": fifo(f"journal/{FIRST}"),
    "a journal file is a folder": folder(f"journal/{FIRST}"),
    "a later journal file is a link": link(f"journal/{segment_name(1 << 30)}", f"journal/{FIRST}"),
    "the work folder is a link": link(".rebuilt-in-place", "queue"),
    "what is replaced is outside": replacing("../{name}/settings"),
    "what is replaced is the log": replacing("journal"),
    "what is replaced is a queue through a link": both(replacing("queue/settings"), link("queue", "queue")),
    "what replaces is a link": both(replacing("queue"), link(".rebuilt-in-place/queue", "queue")),
    "the control file is a link": both(replacing(), link(".rebuilt-in-place/.replacing", "settings")),
    "a run's plan is a link": link(".rebuilt-in-place/.rebuild/plan.json", "settings"),
}
"""Objects planted in the folder of a store in JMQ's layout."""

OUT_PLANTS: dict[str, Plant] = {
    **{
        f"{name} is a link": link(name, "config")
        for name in (".rebuild", ".rebuild/parts", ".salvage", ".restore", ".restore/done", ".restore/commitlog")
    },
    **{
        f"{name} is a link": link(name, "settings")
        for name in (
            ".rebuild/plan.json", ".rebuild/plan.json.tmp", "checkpoint", "checkpoint.tmp", "config/topics.json.tmp",
            "salvage.json.tmp", "salvage-damages.jsonl", "salvage-moved.jsonl", ".restore/plan.json",
            ".restore/plan.json.tmp", f".restore/commitlog/{segment_name(0)[:-1]}0.tmp", "restore-notes.jsonl.tmp",
        )
    },
    "config is a link": link("config", "config"),
    "commitlog is a link": link("commitlog", "commitlog"),
    "consumequeue is a link": link("consumequeue", "consumequeue"),
    "consumequeue is a link to nothing": link("consumequeue", "made"),
    "index is a link to nothing": link("index", "made"),
    "plan.json is a FIFO": fifo(".rebuild/plan.json"),
}  # fmt: skip
"""Objects planted in the folder that a run is to write to."""


def data_file_of(path: str, action: str = "add") -> Plant:
    """Return a version of `messages` that names a file elsewhere; `{canary}` stands for the tree's path."""

    def plant(lake: Path, canary: Path) -> None:
        log = lake / "messages" / "_delta_log"
        version = 1 + max(int(each.stem) for each in log.glob("*.json"))
        named = path.format(canary=canary, name=canary.name)
        document = {"path": named, "dataChange": True, "partitionValues": {"store_date": None}, "size": 10}
        times = {"add": {"modificationTime": 1}, "remove": {"deletionTimestamp": 1, "extendedFileMetadata": True}}
        (log / f"{version:020d}.json").write_text(json.dumps({action: document | times[action]}) + "\n")

    return plant


PARTITION = "store_date=2023-11-14"
LAKE_PLANTS: dict[str, Plant] = {
    **{
        f"add {path}": data_file_of(path)
        for path in (
            "../../{name}/settings", "{canary}/settings", "file://{canary}/settings", "%2e%2e/%2E./{name}/settings",
        )
    },
    **{f"remove {path}": data_file_of(path, "remove") for path in ("../../{name}/settings", "{canary}/settings")},
    "a folder of a table is a link": link("messages/other", "config"),
    "a partition is a link": link("messages/store_date=1970-01-01", "config"),
    "a partition with rows is a link": link(f"messages/{PARTITION}", "config"),
    "a file of a table is a link": link("messages/old.parquet", "settings"),
    "a folder of packs is a link": link("bodies/store_date=1970-01-01", ""),
    "packs of a broker are a link": link(f"bodies/{PARTITION}/broker=other", "packs"),
    "bodies with rows are a link": link(f"bodies/{PARTITION}", ""),
    "staged profiles are a link": link("profiles/staged", "config"),
    "a FIFO in a table": fifo("messages/old.parquet"),
}  # fmt: skip
"""Objects planted in a lake's folder."""


def linked_folder(name: str, target: str = "") -> Plant:
    """Return a link in the place of a folder of a lake, whose content becomes a part of the canary tree."""

    def plant(lake: Path, canary: Path) -> None:
        if (lake / name).is_dir():
            shutil.copytree(lake / name, canary / target, dirs_exist_ok=True)
        _clear(lake / name).symlink_to(canary / target)

    return plant


LAKE_LINKS: dict[str, Plant] = {
    **{
        name: link(name, "")
        for name in (
            "messages", "consumer_offsets", "profiles", "quality_results", "erasures", "replays", "messages/_delta_log",
            "archive_runs/_delta_log", "edges/_delta_log", "consumer_offsets/_delta_log", "profiles/_delta_log",
            "messages/_delta_log/_seals", "bodies", "_newest", "_damaged", "_damaged/earlier", "_streams", "_staging",
            f"bodies/{PARTITION}", "other",
        )
    },
    # The target has the lake's original content, so that a job that follows the link notices nothing.
    **{name: linked_folder(name, "moved") for name in ("message_keys", "topic_minutes/_delta_log")},
    "quality.html": link("quality.html", "settings"),
    "archive_runs/extra.parquet": link("archive_runs/extra.parquet", "settings"),
}  # fmt: skip
"""Links in a lake's folder, by their paths there; every job refuses such a lake."""
