"""Stores that match a path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from commitlake.connectors.formats.jmq.format import FORMAT as JMQ
from commitlake.connectors.formats.registry import COMMITLOGS, all_formats
from commitlake.connectors.formats.rocketmq.format import FORMAT as ROCKETMQ
from commitlake.connectors.log_format.files import Segment
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading import stores
from commitlake.connectors.reading.errors import EmptyStoreError, StoreError
from commitlake.connectors.reading.stores import (
    Store,
    find_stores,
    for_each_store,
    refresh_store,
    segment_size,
    segment_sizes,
)
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.remote_copies import COPY, serve_copies

SIZE = 2048


def make_store(root: Path) -> Path:
    """Make a store of two segments."""
    first, second = closed_segment(messages(3), SIZE), open_segment(messages(2), SIZE, SIZE)
    return write_store(root, [(SIZE, second), (0, first)])


def test_store_folder_and_its_commitlog_name_the_same_store(tmp_path: Path) -> None:
    root = make_store(tmp_path / "broker-a")
    (by_root,) = find_stores(str(root), formats=COMMITLOGS)
    (by_log,) = find_stores(str(root / "commitlog") + "/", formats=COMMITLOGS)
    assert by_root == by_log
    assert by_root.broker == "broker-a"
    assert [segment.base_offset for segment in by_root.segments] == [0, SIZE]
    assert [segment.file_size for segment in by_root.segments] == [SIZE, SIZE]


def test_two_names_of_one_offset_are_an_error(tmp_path: Path) -> None:
    root = make_store(tmp_path / "broker-a")
    other = "".join(chr(0x660 + int(digit)) for digit in segment_name(SIZE))
    (root / "commitlog" / other).write_bytes(b"")
    with pytest.raises(
        StoreError, match=f"both begin at physical offset {SIZE}, but one of their names has non-ASCII digits"
    ):
        find_stores(str(root), formats=COMMITLOGS)


def test_a_folder_named_store_is_named_after_its_parent(tmp_path: Path) -> None:
    assert find_stores(str(make_store(tmp_path / "broker-a" / "store")), formats=COMMITLOGS)[0].broker == "broker-a"


def test_broker_option_names_the_store(tmp_path: Path) -> None:
    assert find_stores(str(make_store(tmp_path / "x")), "broker-z", formats=COMMITLOGS)[0].broker == "broker-z"


@pytest.mark.parametrize(
    "pattern", ["*", "**", "*/commitlog", "**/commitlog", "broker-?", "{broker}", "{broker}/commitlog"]
)
def test_glob_reads_a_whole_cluster(tmp_path: Path, pattern: str) -> None:
    for name in ("broker-b", "broker-a"):
        make_store(tmp_path / name)
    (tmp_path / "other").mkdir()
    assert [store.broker for store in find_stores(f"{tmp_path}/{pattern}", formats=COMMITLOGS)] == [
        "broker-a",
        "broker-b",
    ]


def test_placeholder_names_stores_that_are_all_called_store(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_store(tmp_path / name / "data" / "store")
    assert [store.broker for store in find_stores(f"{tmp_path}/{{broker}}/*/store", formats=COMMITLOGS)] == ["a", "b"]


def test_list_of_paths_reads_them_all(tmp_path: Path) -> None:
    roots = [make_store(tmp_path / name) for name in ("a", "b")]
    assert len(find_stores(",".join(str(root) for root in roots), formats=COMMITLOGS)) == 2


def test_two_stores_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_store(tmp_path / name / "x" / "store")
    with pytest.raises(UsageError, match=r"two stores are named 'x'.*\{broker\}"):
        find_stores(f"{tmp_path}/*/x/store", formats=COMMITLOGS)


def test_other_files_and_folders_are_not_segments(tmp_path: Path) -> None:
    root = make_store(tmp_path / "a")
    (root / "commitlog" / "lock").write_text("lock")
    (root / "commitlog" / f"{9:020d}").mkdir()
    (root / "commitlog" / "00000000000000004096.bak").write_text("")
    assert len(find_stores(str(root), formats=COMMITLOGS)[0].segments) == 2


def test_the_error_for_a_missing_path_names_the_expected_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere does not exist: expected a broker's store folder"):
        find_stores(str(tmp_path / "nowhere"), formats=COMMITLOGS)


def test_folder_without_a_log_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a store, because it has no folder 'commitlog'"):
        find_stores(str(tmp_path), formats=COMMITLOGS)


@pytest.mark.parametrize(("there", "asked"), [("journal", ROCKETMQ), ("commitlog", JMQ)])
def test_the_error_for_a_store_of_another_layout_names_the_option_for_it(
    tmp_path: Path, there: str, asked: Format
) -> None:
    (tmp_path / there).mkdir()
    for path in (tmp_path, tmp_path / there):
        with pytest.raises(
            StoreError, match=rf"holds '{there}', but '{asked.folder}' was asked for: use --layout {there}, or"
        ):
            find_stores(str(path), formats=all_formats().select_only(asked))


def test_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        find_stores(str(tmp_path / "file"), formats=COMMITLOGS)


def test_store_without_a_segment_is_empty(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with pytest.raises(EmptyStoreError, match="has not stored a message yet"):
        find_stores(str(tmp_path), formats=COMMITLOGS)


def test_empty_store_among_others_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_store(tmp_path / "a")
    (tmp_path / "new" / "commitlog").mkdir(parents=True)
    assert [store.broker for store in find_stores(f"{tmp_path}/*", formats=COMMITLOGS)] == ["a"]
    assert "new/commitlog contains no segment" in caplog.text


@pytest.mark.parametrize("name", ["store[1]", "st*r?", "a,b", " a", "store {broker}"])
def test_a_folder_with_glob_characters_in_its_name_is_found(tmp_path: Path, name: str) -> None:
    make_store(tmp_path / name)
    make_store(tmp_path / "store1")
    for given in (tmp_path / name, tmp_path / name / "commitlog"):
        (store,) = find_stores(str(given), formats=COMMITLOGS)
        assert store.root == str(tmp_path / name / "commitlog")
    assert len(find_stores(f"{tmp_path}/*", formats=COMMITLOGS)) == 2


def test_glob_without_a_match_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store matches"):
        find_stores(f"{tmp_path}/*/commitlog", formats=COMMITLOGS)


@pytest.mark.parametrize(
    ("files", "size"),
    [
        pytest.param([(0, 4096), (4096, 4096)], 4096, id="whole"),
        pytest.param([(8192, 4096), (12288, 100)], 4096, id="the newest is still short"),
        pytest.param([(0, 3428), (4096, 1008)], 4096, id="all are cut"),
        pytest.param([(0, 3000), (12288, 4096), (16384, 4096)], 4096, id="some are missing"),
        pytest.param([(0, 4096), (12288, 4000)], 4096, id="only every third is there"),
        pytest.param([(0, 3000), (12288, 100)], 3072, id="cut, and some are missing: the least that fits"),
        pytest.param([(0, 5000), (4096, 4096)], 4096, id="one is too long"),
        pytest.param([(0, 0), (4096, 0)], 0, id="empty"),
        pytest.param([(0, 1), (2**60 + 1, 1)], 1, id="names far apart"),
        pytest.param([(0, 77)], 77, id="one alone"),
    ],
)
def test_segment_size_follows_from_names_and_lengths(files: list[tuple[int, int]], size: int) -> None:
    segments = tuple(Segment(f"{base}", base, length) for base, length in files)
    assert segment_size(Store("b", "root", segments, ROCKETMQ)) == size


@pytest.mark.parametrize(
    ("files", "sizes"),
    [
        pytest.param([(0, 4096), (4096, 100)], [4096, 4096], id="the newest is still short"),
        pytest.param([(0, 8192), (8192, 8192), (16384, 4096), (20480, 9)], [8192, 8192, 4096, 4096], id="smaller now"),
        pytest.param([(0, 4096), (4096, 4096), (8192, 6000)], [4096, 4096, 6000], id="larger now"),
        pytest.param([(0, 5000), (8192, 4096), (12288, 4096)], [8192, 4096, 4096], id="larger once, and cut"),
        pytest.param([(0, 5000), (4096, 4096)], [4096, 4096], id="one is too long"),
        pytest.param([(0, 100), (12288, 4096), (16384, 4096)], [4096, 4096, 4096], id="some are missing"),
        pytest.param([(0, 4096), (4096, 0)], [4096, 4096], id="the newest is empty"),
    ],
)
def test_a_segment_is_as_long_as_its_file(files: list[tuple[int, int]], sizes: list[int]) -> None:
    segments = tuple(Segment(f"{base}", base, length) for base, length in files)
    assert segment_sizes(Store("b", "root", segments, ROCKETMQ)) == sizes


def test_a_folder_whose_name_is_not_utf8_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_store(tmp_path / "a")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bro\xffker")) / "commitlog").mkdir(parents=True)
    assert [store.broker for store in find_stores(f"{tmp_path}/*", formats=COMMITLOGS)] == ["a"]
    assert r"the name of a folder is not UTF-8: skipped b'bro\xffker'" in caplog.text.replace(f"{tmp_path}/", "")
    with pytest.raises(StoreError, match="because the path is not valid UTF-8"):
        find_stores(os.fsdecode(os.fsencode(tmp_path) + b"/bro\xffker"), formats=COMMITLOGS)


def test_glob_over_copies_looks_no_deeper_than_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_copies(tmp_path / "remote", monkeypatch)
    container = COPY.rpartition("/")[0]
    for name in ("a", "b"):
        make_store(tmp_path / "remote" / name)
        make_store(tmp_path / "remote" / name / "deeper" / "c")
    looked: list[str] = []
    look = stores._find_logs_in

    def note(
        filesystem: pafs.FileSystem, names: Sequence[str], known: Sequence[Format], folder: str
    ) -> tuple[list[str], list[str]]:
        looked.append(folder.rpartition("example/")[2] or folder)
        return look(filesystem, names, known, folder)

    monkeypatch.setattr(stores, "_find_logs_in", note)
    assert [store.broker for store in find_stores(f"{container}/{{broker}}", formats=COMMITLOGS)] == ["a", "b"]
    assert not any("deeper" in folder for folder in looked)
    assert [store.broker for store in find_stores(f"{container}/a/**/{{broker}}", formats=COMMITLOGS)] == ["c"]


def test_empty_store_among_copies_is_skipped_and_others_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    serve_copies(tmp_path / "remote", monkeypatch)
    for name in ("d", "a", "c"):
        make_store(tmp_path / "remote" / name)
    (tmp_path / "remote" / "b" / "commitlog").mkdir(parents=True)
    found = find_stores(f"{COPY.rpartition('/')[0]}/{{broker}}", formats=COMMITLOGS)
    assert [store.broker for store in found] == ["a", "c", "d"]
    assert "/b/commitlog contains no segment: the broker has not stored a message yet: skipped" in caplog.text
    assert for_each_store(lambda store: store.broker, found) == ["a", "c", "d"]
    (tmp_path / "remote" / "a" / "commitlog" / f"{2 * SIZE:020}").write_bytes(bytes(SIZE))
    assert len(refresh_store(found[0]).segments) == len(found[0].segments) + 1
