"""Check, before a commit, that the files of a run's tasks are where this process sees them.

Tasks may run on machines whose folders are not this one's: a commit would then name files that nobody can read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from commitlake.connectors.lake.manifest import ManifestRow
from commitlake.connectors.lake.paths import LakeError, LakePaths
from commitlake.connectors.lake.versions import table_files


def check_written(lake: LakePaths, manifest: Iterable[ManifestRow]) -> None:
    """Check the data files of a lake in a folder; in an object store, all machines see the same.

    Args:
        lake: locations of the tables.
        manifest: the files, which have been written and not committed.

    Raises:
        LakeError: if a file is missing, or has another size.
    """
    if lake.s3 is not None:
        return
    of_table: dict[str, list[ManifestRow]] = defaultdict(list)
    for row in manifest:
        if row.path:
            of_table[row.table].append(row)
    for table, rows in of_table.items():
        uri = getattr(lake, table)
        infos = table_files(uri, None).get_file_info([row.path for row in rows])
        for row, info in zip(rows, infos, strict=True):
            if not info.is_file or info.size != row.size:
                found = f"{info.size:,} bytes" if info.is_file else "no such file"
                raise LakeError(
                    f"{uri}/{row.path}: a task wrote {row.size:,} bytes, found {found}: tasks run where this folder is "
                    "another one. Nothing was committed. Choose a folder that all machines share, or an object store"
                )
