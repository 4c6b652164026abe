"""YARN's configuration is found before Hadoop's client tries to reach a resource manager."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.connectors.spark.yarn import check_yarn_configuration
from commitlake.schemas.errors import UsageError


@pytest.fixture
def hadoop(tmp_path: Path) -> Path:
    """A folder of Hadoop's configuration."""
    folder = tmp_path / "hadoop"
    folder.mkdir()
    (folder / "yarn-site.xml").write_text("<configuration/>")
    return folder


@pytest.mark.parametrize("variable", ["HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_each_variable_may_name_the_folder(hadoop: Path, tmp_path: Path, variable: str) -> None:
    check_yarn_configuration(None, {variable: str(hadoop)})
    check_yarn_configuration(tmp_path, {"HADOOP_CONF_DIR": str(tmp_path), variable: str(hadoop)})


def test_the_error_names_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"yarn-site\.xml; neither is set"):
        check_yarn_configuration(None, {"HADOOP_CONF_DIR": ""})
    with pytest.raises(UsageError, match=f"no such file in YARN_CONF_DIR={tmp_path}"):
        check_yarn_configuration(tmp_path, {"YARN_CONF_DIR": str(tmp_path)})


def test_sparks_own_script_may_set_the_variables(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").write_text("export HADOOP_CONF_DIR=/etc/hadoop/conf\n")
    check_yarn_configuration(tmp_path, {})


def test_a_relative_folder_is_refused_because_the_jvm_works_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "yarn-site.xml").touch()
    monkeypatch.chdir(tmp_path)
    check_yarn_configuration(None, {"HADOOP_CONF_DIR": str(tmp_path / "conf")})
    with pytest.raises(UsageError, match="HADOOP_CONF_DIR: expected the absolute path of a folder, found conf"):
        check_yarn_configuration(None, {"HADOOP_CONF_DIR": "conf"})
