"""Files of lakes, in a folder or in S3, that exist completely or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import is_s3
from commitlake.connectors.whole_files import write_whole
from commitlake.schemas.store_files import make_folders


@contextmanager
def write_file(folder: str, path: str, s3: S3Options | None = None) -> Iterator[Any]:
    """Open a file in a folder for writing; it appears once the block has ended without an error.

    Args:
        folder: path or URI of the folder. A local one must not be a link, and must contain none.
        path: the file, relative to the folder; an existing file is replaced.
        s3: the object store, if the folder is in one; by default that of the environment.

    Raises:
        S3Error: if an object store refuses it.
        UnsafeFileError: if a part of the path is a link.
    """
    if is_s3(folder):
        from commitlake.connectors.storage.s3_storage import S3Storage  # noqa: PLC0415 (boto3 takes long to import)

        with S3Storage(folder, s3).open_write(path) as upload:
            yield upload
        return
    local = Path(folder) / path
    make_folders(local.parent, below=Path(folder).parent)
    with write_whole(local) as file:
        yield file
