"""A folder on any file system that Hadoop supports, accessed through a JVM."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError

logger = logging.getLogger(__name__)


class HadoopFolder:
    """A folder in Hadoop's filesystem for files of driver and launcher, which only its owner can read.

    Attributes:
        place: URI of the folder.
    """

    def __init__(self, jvm: Any, place: str) -> None:
        """Set the folder's URI; the folder need not exist.

        Args:
            jvm: view of the JVM, from a gateway.
            place: URI of the folder.
        """
        self.place = place
        self._path = jvm.org.apache.hadoop.fs.Path(place)
        self._make_path = jvm.org.apache.hadoop.fs.Path
        self._files = self._path.getFileSystem(jvm.org.apache.hadoop.conf.Configuration())
        self._private = jvm.org.apache.hadoop.fs.permission.FsPermission("700")

    def file_names(self) -> list[str]:
        """Return the names of the files; an empty list if there is no folder."""
        if not self._files.exists(self._path):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(self._path)]

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        stream = self._files.open(self._path_of(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which appears under its name when it is complete."""
        self._files.mkdirs(self._path, self._private)
        unfinished = self._path_of(f"_{name}")
        stream = self._files.create(unfinished)
        try:
            stream.write(content)
        finally:
            stream.close()
        if not self._files.rename(unfinished, self._path_of(name)):
            raise OSError(
                f"{self.place}/{name} cannot be written: Hadoop did not rename the finished file {unfinished} to this "
                "name"
            )

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._files.delete(self._path_of(name), False)

    def delete_all(self) -> None:
        """Delete the folder with its files; if that fails, log a warning."""
        try:
            self._files.delete(self._path, True)
        except Py4JError as error:
            logger.warning("%s cannot be deleted, and may hold secrets: %s", self.place, str(error).splitlines()[0])

    def _path_of(self, name: str) -> Any:
        return self._make_path(self._path, name)


def staging_folder_uri(jvm: Any, name: str, staging_root: str | None) -> str:
    """Return the URI of a folder for an application's files, in the place that Spark uses for them.

    Args:
        jvm: view of the JVM, from a gateway.
        name: name of the folder; it may have parts.
        staging_root: the setting `spark.yarn.stagingDir`, in which each user has a folder; None for the home folder on
            the default file system.
    """
    paths = jvm.org.apache.hadoop.fs
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    if staging_root:
        user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
        base = paths.Path(staging_root, user)
    else:
        base = paths.FileSystem.get(configuration).getHomeDirectory()
    return str(base.getFileSystem(configuration).makeQualified(paths.Path(base, name)).toString())
