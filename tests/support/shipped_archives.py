"""Archives of a store and of its copy in an object store, compared."""

from __future__ import annotations

from pathlib import Path

from commitlake.jobs.archive import command as archive
from commitlake.jobs.ship import command as ship
from tests.support.archived import TABLES, rows_of
from tests.support.store_formats import StoreFormat


def check_copy_is_archived_alike(copy: str, folder: Path, layout: StoreFormat) -> None:
    """Check that the tables of a copy are those of its store; the store grows meanwhile.

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
        if table == "store_config":  # sizes of files, and delay levels, are read from the store's own queues only
            expected = [row for row in expected if row["kind"] != "setting"]
        assert found == expected, table
