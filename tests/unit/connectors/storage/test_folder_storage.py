"""Files of lakes in folders; tests/integration/s3/test_lake.py writes them to an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.storage.folder_storage import FolderStorage
from commitlake.schemas.safe_store_files import UnsafeFileError


def test_a_file_appears_once_it_is_complete(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for data in (b"1", b"22"):
        with FolderStorage(table).open_write("a/b/file") as file:
            file.write(data)
            assert not list(table.rglob("file")) or (table / "a" / "b" / "file").read_bytes() != data
        assert (table / "a" / "b" / "file").read_bytes() == data
    assert [path.name for path in table.rglob("*") if path.is_file()] == ["file"]


def test_a_file_whose_writer_fails_does_not_appear(tmp_path: Path) -> None:
    def write() -> None:
        with FolderStorage(tmp_path / "table").open_write("file") as file:
            file.write(b"1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("link", ["table", "table/a"])
def test_links_in_the_path_are_refused(tmp_path: Path, link: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "other")
    with pytest.raises(UnsafeFileError), FolderStorage(tmp_path / "table").open_write("a/b/file"):
        pass
    assert not list((tmp_path / "other").iterdir())
