"""Choice of a Java among those of a machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from commitlake.connectors.spark.java import JavaError, java_home

ALL = "java.base jdk.incubator.vector jdk.zipfs"


def java(home: Path, version: str | None, modules: str = ALL) -> Path:
    """Make a folder that looks like a Java of a version, or like one that does not state it."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulate a machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    (tmp_path / "bin").mkdir()


def test_java_home_is_preferred_to_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given, on_path = java(tmp_path / "given", "17.0.15"), java(tmp_path / "found", "21")
    monkeypatch.setenv("JAVA_HOME", str(given))
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java_home() == given


def test_a_link_on_the_path_is_resolved_to_its_java_home(tmp_path: Path) -> None:
    home = java(tmp_path / "jvm" / "java-21", "21.0.8")
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home() == home


@pytest.mark.parametrize(
    ("version", "modules"),
    [
        ("1.8.0_452", ALL),
        ("11.0.27", ALL),
        ("16", ALL),
        ("17.0.9", "java.base jdk.zipfs"),  # Spark's launcher asks for a module that this one lacks
    ],
)
def test_an_unsuitable_java_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, modules: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path / "given", version, modules)))
    with pytest.raises(JavaError, match=r"no Java 17 or newer was found; .*/given "):
        java_home()
    installed = java(tmp_path / "venv" / "share" / "commitlake" / "java", None)
    assert java_home() == installed


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.8", "25-ea", None])
def test_a_suitable_java_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None) -> None:
    home = java(tmp_path / "given", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


def test_the_error_without_a_java_says_how_to_get_one() -> None:
    with pytest.raises(JavaError, match=r"^no Java 17 or newer was found: install one, .*spark-submit\.sh"):
        java_home()
