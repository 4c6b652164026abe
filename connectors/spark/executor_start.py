"""Start of an executor's Python with the packages of the archive, see `worker_environment`; standard library only.

A standalone worker never deletes the folder of a run. The packages in it are therefore moved to one place for all runs,
at once or not at all, and later runs delete their own copy. YARN, where the archive is a link to a cache, deletes what
it no longer needs.

The place is private to the worker's user, and has a folder for each content of an archive, named by its digest. A
folder is used only if all files are in it, and none is shorter than it was: what a cleaner of old files or a full disk
left of it is replaced. (Certificates of a company are often appended to those of a package.) A process holds a lock on
the folder that it uses, for as long as it runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from commitlake.schemas.private_folders import SharedFolderError, make_private_folder

DIGEST = "bin/digest"
"""File with the digest of the packages. It is packed last: without it, the archive was not unpacked to its end."""
FILES = "packages.json"
"""File in the folder of the packages: the sizes of all others by name, except of what Python and numba compile."""
KEPT_DAYS = 30
"""Days for which a worker keeps the packages of a version that no run uses."""
_PRIVATE = 0o700
_LOCK_SECONDS = 30.0
_DELETED = ".deleted-"
_DELETING_SECONDS = 3600


def main(arguments: Sequence[str]) -> None:
    """Restart this executor's Python process, so that it imports the packages from the archive.

    Args:
        arguments: the unpacked archive, then the arguments of Python.
    """
    root, *others = arguments
    packages = packages_folder(Path(root), cache_folder(os.environ))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    os.execv(sys.executable, [sys.executable, *others])  # noqa: S606 (no shell is wanted)


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the cache folder for the packages of all versions; None for a user without a home folder."""
    cache, home = environment.get("XDG_CACHE_HOME"), environment.get("HOME")
    if not cache and not home:
        return None
    return (Path(cache) if cache else Path(home or "", ".cache")) / "commitlake" / "executors"


def packages_folder(root: Path, cache: Path | None) -> Path:
    """Return the folder of the packages; they are moved from the archive to the cache first, if possible.

    Args:
        root: the unpacked archive.
        cache: folder of the packages of all versions; None for none.
    """
    own = root.absolute() / "lib"
    if cache is None or root.is_symlink():
        return own
    try:
        kept = cache / (root / DIGEST).read_text()
        make_private_folder(cache, _PRIVATE)
        with _lock_exclusively(cache):
            if not _is_complete(kept):
                _move_to_cache(own, kept)
            # The folder's time shows other runs that it is used, see KEPT_DAYS.
            with suppress(OSError):  # a file system without locks
                os.utime(kept)
                _lock_shared(kept)
                _delete_unused_folders(cache, kept)
    except (OSError, SharedFolderError) as error:
        if not own.is_dir():
            sys.exit(f"commitlake: the packages of this run cannot be found: {error}")
        print(f"commitlake: {error}. The packages stay in the folder of this run", file=sys.stderr)
        return own
    with suppress(OSError):
        _rename_and_delete(own)
    return kept


def _move_to_cache(run_packages: Path, cached_packages: Path) -> None:
    """Move the packages of this run to the cache, where they replace incomplete ones."""
    if run_packages.is_dir():
        _rename_and_delete(cached_packages)
        run_packages.rename(cached_packages)
    else:  # an earlier process of this run has moved them
        print(
            f"commitlake: {cached_packages}: files are missing, or were cut: the next run replaces them",
            file=sys.stderr,
        )


def _is_complete(folder: Path) -> bool:
    """Return whether a folder exists, and all files on its list are there with their full size."""
    with suppress(OSError, ValueError):
        sizes: dict[str, int] = json.loads((folder / FILES).read_bytes())
        return all((folder / name).stat().st_size >= size for name, size in sizes.items())
    return False


@contextmanager
def _lock_exclusively(folder: Path) -> Iterator[None]:
    """Lock a folder inside the block, so that only one process at a time changes it.

    Raises:
        OSError: if the file system has no locks, or another process does not end.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _lock_shared(folder: Path) -> None:
    """Lock a folder for shared use until this process and its children end, so that no process deletes it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # The lock must outlive the `exec` that starts Python with the packages.
    os.set_inheritable(descriptor, True)


def _delete_unused_folders(cache: Path, used_folder: Path) -> None:
    """Delete folders that no process uses, and that none has used for some time."""
    for folder in list(cache.iterdir()):
        age = time.time() - folder.stat().st_mtime
        if folder.name.startswith(_DELETED):
            if age > _DELETING_SECONDS:  # the process that deleted it was killed
                _delete_in_background(folder)
        elif folder != used_folder and age > KEPT_DAYS * 24 * 3600 and not _is_in_use(folder):
            _rename_and_delete(folder)


def _is_in_use(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _rename_and_delete(folder: Path) -> None:
    """Rename a folder so that other processes do not find it, and delete it; do nothing if it does not exist.

    No other process begins to delete it, too: of two that run at once, both may stop at what the other has deleted.
    """
    aside = folder.with_name(f"{_DELETED}{folder.name}-{os.getpid()}")
    with suppress(FileNotFoundError):
        folder.rename(aside)
        os.utime(aside)
        _delete_in_background(aside)


def _delete_in_background(folder: Path) -> None:
    """Delete a folder in a process that this one does not wait for."""
    subprocess.Popen(
        ["rm", "-rf", "--", str(folder)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
