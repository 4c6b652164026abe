"""Safe access to files in a folder that other users may write to; standard library only.

A store may come from an untrusted source, and users who can write to its folder need not be the one who runs a job on
it. So the same rules apply to every file and folder below a store, a lake, or the work folder of a run:

- Names that are read from a file are relative and plain: no `..`, no absolute path, no NUL (`check_relative_name`).
- Symbolic links are not followed, in any part of the path below the folder that the operator named (`below`). Opened
files must be regular: a FIFO, a socket or a device is an error, and never blocks.
- The folder that the operator named may be a link. For READING only, the top-level folders of a store's log, queues and
index (`commitlog`, `journal`, `consumequeue`, `batchconsumequeue`, `consumequeue_ext`, `queue`, `index`) may be links,
too, as on a broker that keeps them on several disks. A job that writes, replaces or deletes refuses them.
- A file that is written in place must have a single name: writing through a hard link would change another file.
- A new file is always created (`create_file`), never opened: an existing file of that name is unlinked first.
- Work folders of an earlier run are trusted only if they belong to the user of this process (`check_own_folder`).
- Small files are read up to a limit (`read_file`).

Files that may contain messages are created with mode 0640 and folders with 0750, minus the user's umask; jobs run under
`restricted_umask`, which covers files created by libraries.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from commitlake.schemas.errors import CommitLakeError, ExitCode

FILE_MODE, FOLDER_MODE = 0o640, 0o750
MAX_SMALL_FILE_BYTES = 64 << 20
"""Limit for JSON, checkpoint and control files; RocketMQ's offsets of 10,000 groups in 50 queues take about 20 MiB."""
MAX_NAME_BYTES = 4096
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class UnsafeFileError(CommitLakeError, OSError):
    """Error for an unexpected kind of file in a store's folder: a link, a FIFO, another user's work folder."""

    exit_code = ExitCode.USAGE

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"

    @classmethod
    def of(cls, path: str | Path, expected: str, found: str, error_number: int = errno.ELOOP) -> UnsafeFileError:
        """Create an error that names the path, what was expected there, and what was found instead."""
        return cls(error_number, f"expected {expected}, found {found}", str(path))


def check_relative_name(name: str) -> PurePosixPath:
    """Check a name that was read from a file, and return it as a relative path.

    Raises:
        UnsafeFileError: if it is absolute, empty, too long, or points outside the folder.
    """
    path = PurePosixPath(name)
    parts = name.split("/")
    is_long = len(name) > MAX_NAME_BYTES
    if is_long or "\0" in name or path.is_absolute() or not set(parts).isdisjoint({"", ".", ".."}):
        found = repr(name[:100]) + ("..." if len(name) > 100 else "")
        raise UnsafeFileError.of(found, "a relative path without '..'", "another name", errno.EINVAL)
    return path


def describe_file_type(mode: int) -> str:
    """Return the kind of file that a mode describes, in words, such as `a folder`."""
    return next((text for is_kind, text in _KINDS if is_kind(mode)), "a file of an unknown kind")


@contextmanager
def open_parent(path: Path, trusted_root: Path) -> Iterator[int]:
    """Open the folder that contains `path`; follow symbolic links only in the part of the path down to `trusted_root`.

    Args:
        path: path of a file or folder.
        trusted_root: a folder above it, which may be a link.

    Yields:
        File descriptor for `dir_fd`.

    Raises:
        FileNotFoundError: if a folder is missing.
        UnsafeFileError: if a part of the path is a link or not a folder.
    """
    with _open_folders(path.parent, trusted_root) as descriptor:
        yield descriptor


@contextmanager
def _open_folders(path: Path, trusted_root: Path) -> Iterator[int]:
    """Open `trusted_root` or a folder under it, one path component at a time, without following symbolic links."""
    parts = path.parts[len(trusted_root.parts) :]
    if path.parts[: len(trusted_root.parts)] != trusted_root.parts or ".." in parts:
        raise ValueError(f"{path}: expected a path below the folder {trusted_root}")
    # The named folder itself may be a link, so without O_NOFOLLOW.
    descriptor = os.open(trusted_root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for depth, part in enumerate(parts, len(trusted_root.parts) + 1):
            descriptor = _open_folder(descriptor, part, Path(*path.parts[:depth]))
        yield descriptor
    finally:
        os.close(descriptor)


def _open_folder(parent: int, name: str, path: Path) -> int:
    """Open a subfolder, and close its parent's descriptor unless an error is raised."""
    try:
        found = os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            raise UnsafeFileError.of(path, "a folder", describe_file_type(mode)) from None
        raise type(error)(error.errno, error.strerror, str(path)) from None
    # Only one descriptor is open at a time, however deep the path is.
    os.close(parent)
    return found


def open_file(
    path: str | Path, flags: int = os.O_RDONLY, *, trusted_root: Path | None = None, may_have_hard_links: bool = False
) -> int:
    """Open an existing regular file, and return its descriptor.

    Args:
        path: path of the file.
        flags: flags for `os.open`.
        trusted_root: folder below which no part of the path may be a link; by default the file's own folder.
        may_have_hard_links: allow several hard links even though the file is opened for writing.

    Raises:
        FileNotFoundError: if it does not exist.
        UnsafeFileError: if it is a link or not a regular file; or has several names and is opened for writing.
    """
    path = Path(path)
    if trusted_root is None or path.parent == trusted_root:
        return _open_file(path, str(path), flags, None, may_have_hard_links)
    with open_parent(path, trusted_root) as parent:
        return _open_file(path, path.name, flags, parent, may_have_hard_links)


def _open_file(path: Path, name: str, flags: int, parent: int | None, may_have_hard_links: bool) -> int:
    is_one_name_needed = flags & os.O_ACCMODE != os.O_RDONLY and not may_have_hard_links
    try:
        # Check before opening, because opening a device can have side effects.
        _check_regular_file(path, os.stat(name, dir_fd=parent, follow_symlinks=False), is_one_name_needed)
        descriptor = os.open(name, flags | _SAFELY, dir_fd=parent)
    except UnsafeFileError:
        raise
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None
    try:
        # Again, because the name may have been given to another file since the first check.
        _check_regular_file(path, os.fstat(descriptor), is_one_name_needed)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular_file(path: Path, status: os.stat_result, refuse_hard_links: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError.of(path, "a regular file", describe_file_type(status.st_mode))
    if refuse_hard_links and status.st_nlink > 1:
        names = f"{status.st_nlink} hard links: writing would change another file, so make a copy first"
        raise UnsafeFileError.of(path, "a file with one name", names, errno.EMLINK)


def read_file(path: Path, *, trusted_root: Path | None = None, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """Read a whole file of limited size, without following symbolic links.

    Args:
        path: path of the file.
        trusted_root: see `open_file`.
        limit: maximum size in bytes.

    Raises:
        FileNotFoundError: if it does not exist.
        UnsafeFileError: see `open_file`; also if it is larger than the limit.
    """
    with os.fdopen(open_file(path, trusted_root=trusted_root), "rb", buffering=0) as file:
        pieces = []
        # One byte more shows that the file is too large; its size alone is no proof, because it may grow.
        left = limit + 1
        while left and (piece := file.read(min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
        if not left:
            size = os.fstat(file.fileno()).st_size
            raise UnsafeFileError.of(path, f"at most {limit} bytes", f"{size}", errno.EFBIG)
    return b"".join(pieces)


@contextmanager
def restricted_umask() -> Iterator[int]:
    """Set a umask inside the block, so that files created there have no more permissions than FILE_MODE.

    This is for files that libraries create without a mode, such as the log of a Delta table. The umask applies to all
    threads of the process and to child processes.

    Yields:
        New umask.
    """
    before = os.umask(0o077)
    umask = before | (0o777 & ~FOLDER_MODE)
    os.umask(umask)
    try:
        yield umask
    finally:
        os.umask(before)


def read_json(path: Path, *, trusted_root: Path | None = None) -> Any:
    """Read a JSON file that this program wrote, without following symbolic links.

    Raises:
        ValueError: if it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(read_file(path, trusted_root=trusted_root))
    except RecursionError:
        raise ValueError(f"{path}: expected JSON, found a document that is nested too deeply") from None


def create_file(path: Path, *, trusted_root: Path | None = None, may_replace: bool = True) -> int:
    """Create an empty file for writing, by default in place of an existing file, and return its descriptor.

    Args:
        path: path of the file.
        trusted_root: see `open_file`.
        may_replace: unlink an existing file, link or FIFO of its name first, without following it.

    Raises:
        FileExistsError: if the file exists, and `may_replace` is False.
        UnsafeFileError: if a folder has this name, or a part of the path is a link.
    """
    with open_parent(path, path.parent if trusted_root is None else trusted_root) as parent:
        try:
            if may_replace:
                os.unlink(path.name, dir_fd=parent)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            raise UnsafeFileError.of(path, "a file or nothing", "a folder") from None
        except PermissionError as error:  # the error has the name only
            raise PermissionError(error.errno, error.strerror, str(path)) from None
        return _create_file(path, parent)


def _create_file(path: Path, parent: int, flags: int = os.O_RDWR) -> int:
    try:
        return os.open(path.name, flags | os.O_CREAT | os.O_EXCL | _SAFELY, FILE_MODE, dir_fd=parent)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None


def open_or_create_file(path: Path, flags: int = os.O_RDWR, *, may_have_hard_links: bool = False) -> int:
    """Open a regular file for writing, or create it if it does not exist, without following symbolic links."""
    while True:
        # The file may appear or go between the two attempts; then they are repeated.
        with suppress(FileNotFoundError):
            return open_file(path, flags, may_have_hard_links=may_have_hard_links)
        with suppress(FileExistsError), open_parent(path, path.parent) as parent:  # created meanwhile
            return _create_file(path, parent, flags)


def remove_file(path: Path, *, trusted_root: Path | None = None) -> None:
    """Delete a file or a link itself; no part of the path to it may be a link.

    Raises:
        FileNotFoundError: if it does not exist.
        UnsafeFileError: if a part of the path before its name is a link.
    """
    with open_parent(path, path.parent if trusted_root is None else trusted_root) as parent:
        try:
            os.unlink(path.name, dir_fd=parent)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from None


def rename_file(path: Path, new_path: Path, *, trusted_root: Path) -> None:
    """Rename a file, a folder, or a link itself; an existing file of the new name is replaced.

    Raises:
        UnsafeFileError: if a part of one of the paths before its name is a link.
    """
    with open_parent(path, trusted_root) as source, open_parent(new_path, trusted_root) as target:
        try:
            os.rename(path.name, new_path.name, src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, str(path)) from None


def remove_tree(path: Path) -> None:
    """Delete a folder with its content, a file, or a link itself; do nothing if it does not exist."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)  # does not follow links
    else:
        path.unlink()


def make_folders(path: Path, *, trusted_root: Path | None = None) -> None:
    """Create a folder and its missing parents.

    Args:
        path: path of the folder.
        trusted_root: folder below which no part of the path may be a link; None to allow links.

    Raises:
        UnsafeFileError: if a part of the path is a link or not a folder.
    """
    if trusted_root is None:
        missing = []
        folder = path
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(FOLDER_MODE, exist_ok=True)  # another task may create it, too
        if not path.is_dir():
            raise UnsafeFileError.of(path, "a folder", describe_file_type(path.stat().st_mode))
        return
    make_folders(trusted_root)
    if path == trusted_root:
        return
    for depth in range(len(trusted_root.parts) + 1, len(path.parts) + 1):
        folder = Path(*path.parts[:depth])
        with open_parent(folder, trusted_root) as parent:
            try:
                os.mkdir(folder.name, FOLDER_MODE, dir_fd=parent)
            except FileExistsError:
                pass
            except OSError as error:  # the error has the name only
                raise type(error)(error.errno, error.strerror, str(folder)) from None
            # Also after creating it: another user may have put a link in its place.
            mode = os.stat(folder.name, dir_fd=parent, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            raise UnsafeFileError.of(folder, "a folder", describe_file_type(mode))


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of files to disk; before that, a crash of the machine can lose a new file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(path: Path, reason: str = "") -> bool:
    """Check that a folder to be changed is not a link, and return whether it exists.

    Args:
        path: path of the folder.
        reason: text that is appended to the error.

    Raises:
        UnsafeFileError: if it is not a folder.
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISDIR(mode):
        raise UnsafeFileError.of(path, "a folder", describe_file_type(mode) + reason)
    return True


def check_own_folder(path: Path) -> bool:
    """Check that a work folder belongs to this user and is not a link, and return whether it exists.

    Raises:
        UnsafeFileError: if it is a link, not a folder, or owned by another user.
    """
    if not check_folder(path):
        return False
    owner = path.lstat().st_uid
    if owner != os.geteuid():
        found = f"a folder of user {owner}: remove it, or run as that user"
        raise UnsafeFileError.of(path, f"a folder of user {os.geteuid()}", found, errno.EPERM)
    return True


def check_tree(folder: Path, max_files: int | None = None) -> None:
    """Check that a folder contains only folders and regular files, at any depth.

    Raises:
        UnsafeFileError: if it contains anything else, or more than `max_files` entries.
    """
    count = 0
    todo = [folder]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                count += 1
                if max_files is not None and count > max_files:
                    raise UnsafeFileError.of(folder, f"at most {max_files} files", "more", errno.EFBIG)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    mode = entry.stat(follow_symlinks=False).st_mode
                    raise UnsafeFileError.of(entry.path, "a file or a folder", describe_file_type(mode))


def newest_file_name(folder: Path, names: Sequence[str]) -> str:
    """Return the name of the most recently written file; the first name if none of the files exists."""
    times = {}
    for name in names:
        with suppress(OSError):
            times[name] = (folder / name).lstat().st_mtime_ns
    return max(times, key=lambda name: times[name], default=names[0])


def folders_in(
    folder: Path, is_wanted: Callable[[str], bool] = lambda _: True, *, trusted_root: Path | None = None
) -> list[str]:
    """Return the sorted names of the folders in a folder that match a filter; an empty list if it does not exist.

    Args:
        folder: path of the folder; it may be a link if `trusted_root` is not given.
        is_wanted: filter of names; what does not match is ignored, links too.
        trusted_root: folder below which no part of the path may be a link.

    Raises:
        UnsafeFileError: if it contains a link, because ignoring a linked folder could lose data.
    """
    return sorted(
        name
        for name, mode in _list_entries(folder, trusted_root)
        if is_wanted(name) and _is_folder(folder / name, mode)
    )


def _is_folder(path: Path, mode: int) -> bool:
    if stat.S_ISLNK(mode):
        raise UnsafeFileError.of(path, "a folder", describe_file_type(mode))
    return stat.S_ISDIR(mode)


def files_in(
    folder: Path, is_wanted: Callable[[str], bool] = lambda _: True, *, trusted_root: Path | None = None
) -> list[str]:
    """Return the sorted names of the regular files in a folder that match a filter; empty if it does not exist.

    Folders are ignored; for `trusted_root` see `folders_in`.

    Raises:
        UnsafeFileError: if a link, a FIFO, a socket or a device has such a name.
    """
    names = []
    for name, mode in _list_entries(folder, trusted_root):
        if not is_wanted(name) or stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise UnsafeFileError.of(folder / name, "a regular file", describe_file_type(mode))
        names.append(name)
    return sorted(names)


def _list_entries(folder: Path, trusted_root: Path | None) -> list[tuple[str, int]]:
    """Return the name and the file type bits of the mode of each entry of a folder."""
    try:
        with _open_folders(folder, folder if trusted_root is None else trusted_root) as parent:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:  # the error names "." only
        raise PermissionError(error.errno, error.strerror, str(folder)) from None
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, _entry_mode(entry)) for entry in entries]
    finally:
        os.close(descriptor)


def _entry_mode(entry: os.DirEntry[str]) -> int:
    """Return the file type bits of a folder entry's mode, if possible without a system call."""
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return entry.stat(follow_symlinks=False).st_mode
