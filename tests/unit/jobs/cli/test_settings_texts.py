"""Tests of texts in a TOML file that a command line cannot contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commitlake.jobs.dump import command as dump
from commitlake.jobs.erase import command as erase


@pytest.mark.parametrize("option", ["keys-file", "key", "reason"])
def test_text_with_nul_is_refused_by_name(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(f'[erase]\nlake = "{tmp_path}"\n{option} = "a\\u0000b"\n')
    with pytest.raises(SystemExit, match="2"):
        erase.main(["--config", str(config), "--dry-run"])
    assert f"--{option}: expected text without NUL characters, found 'a\\x00b'" in capsys.readouterr().err


def test_settings_are_read_from_small_regular_files_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo, large = tmp_path / "fifo", tmp_path / "large.toml"
    os.mkfifo(fifo)
    large.write_bytes(b"#" * ((1 << 20) + 1))
    for path, found in ((fifo, "found a FIFO"), (Path("/dev/zero"), "found a "), (large, "found a larger one")):
        with pytest.raises(SystemExit, match="2"):
            dump.main(["--config", str(path), "store"])
        assert found in capsys.readouterr().err


def test_path_with_nul_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "settings.toml"
    config.write_text('[dump]\nbody = "text"\n')
    with pytest.raises(SystemExit, match="2"):
        dump.main(["--config", str(config), "a\0b"])
    assert "expected text without NUL" in capsys.readouterr().err
