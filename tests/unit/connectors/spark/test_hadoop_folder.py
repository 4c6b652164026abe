"""Files of driver and launcher on a file system of Hadoop; here the local one, through a real JVM."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.spark.hadoop_folder import HadoopFolder, staging_folder_uri

NAME = "000000001-1"


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> HadoopFolder:
    """A folder that is not there yet."""
    return HadoopFolder(spark.sparkContext._jvm, f"file:{tmp_path / 'a b' / 'out'}")


def test_what_was_written_is_read_and_deleted(folder: HadoopFolder, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    assert folder.file_names() == []
    folder.write(NAME, content)
    folder.write("end-0", b"")
    assert sorted(folder.file_names()) == [NAME, "end-0"]
    assert folder.read(NAME) == content
    assert (tmp_path / "a b" / "out" / NAME).read_bytes() == content
    folder.delete(NAME)
    assert folder.file_names() == ["end-0"]
    folder.delete_all()
    folder.delete_all()
    assert folder.file_names() == []
    assert not (tmp_path / "a b" / "out").exists()


def test_only_the_owner_can_enter_the_folder(folder: HadoopFolder, tmp_path: Path) -> None:
    folder.write(NAME, b"secret")
    assert (tmp_path / "a b" / "out").stat().st_mode & 0o777 == 0o700


def test_a_staging_place_is_beside_the_files_of_applications(spark: SparkSession, tmp_path: Path) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert (
        staging_folder_uri(jvm, ".commitlake/x", str(tmp_path)) == f"file:{tmp_path}/{getpass.getuser()}/.commitlake/x"
    )
    home = jvm.System.getProperty("user.home")  # the JVM does not read HOME
    assert staging_folder_uri(jvm, ".sparkStaging/y", None) == f"file:{home}/.sparkStaging/y"
