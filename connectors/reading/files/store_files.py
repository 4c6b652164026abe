"""Choice between the queue and index files of a local store and those of a copy in an object store or HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.reading.files.concurrent_reads import REMOTE_THREADS
from commitlake.connectors.reading.files.index_files import LocalStoreFiles
from commitlake.connectors.reading.files.shipped_files import no_copy_error, open_shipped_files
from commitlake.connectors.reading.files.shipped_stores import open_small_files_folder
from commitlake.connectors.storage.uris import is_uri


def open_store_files(root: str, *, is_read_once: bool = False) -> StoreFiles:
    """Return access to a store's files by their paths.

    Args:
        root: the store's folder, as a path or URI.
        is_read_once: whether no part of a file is read twice, so that nothing is kept in memory.

    Raises:
        NoCopyError: for a store in an object store that `commitlake ship` did not copy.
        StoreError: if the manifest is damaged.
    """
    if not is_uri(root):
        return LocalStoreFiles(Path(root))
    return open_shipped_files(root, is_read_once=is_read_once)


def choose_thread_count(files: StoreFiles) -> int:
    """Return the number of threads to read files with: one for a local disk, several for remote files."""
    return 1 if isinstance(files, LocalStoreFiles) else REMOTE_THREADS


def store_folder_of_log(log_root: str) -> str:
    """Return the store's folder, given the folder of its log, as a path or URI.

    Args:
        log_root: the folder of its log.

    >>> store_folder_of_log("s3://logs/broker-a/commitlog"), store_folder_of_log("/data/store/commitlog")
    ('s3://logs/broker-a', '/data/store')
    """
    return log_root.rpartition("/")[0] if is_uri(log_root) else str(Path(log_root).parent)


@contextmanager
def open_small_files(log_root: str) -> Iterator[Path]:
    """Yield a local folder with a store's settings, offsets and checkpoint, copied there if the store is remote.

    Args:
        log_root: the folder of the store's log, as a path or URI. It may be a link, the store's folder is its parent.

    Raises:
        StoreError: for a store in an object store that `commitlake ship` did not copy.
    """
    with open_small_files_folder(log_root, with_topics=True) as folder:
        if folder is None:
            raise no_copy_error(store_folder_of_log(log_root))
        yield folder.resolve()
