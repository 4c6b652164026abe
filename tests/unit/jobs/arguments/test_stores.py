"""The argument STORE, which can also be given as `--store`."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from commitlake.jobs.arguments.stores import declare_store_argument, parse_file_size, parse_folder_path, require_store
from commitlake.jobs.broker import command as broker
from commitlake.jobs.cli.command import JobError, job_parser
from commitlake.jobs.cli.options import Options, add_options
from commitlake.jobs.demo import command as demo
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.restore import command as restore
from commitlake.schemas.errors import ExitCode


@dataclass(frozen=True, kw_only=True)
class Stores(Options):
    """Options with a store."""

    store: str | None = declare_store_argument("the store")


@pytest.mark.parametrize("given", [["/store"], ["--store", "/store"], ["--store=/store"]])
def test_a_store_is_an_argument_or_an_option(given: list[str]) -> None:
    parser = job_parser("verify", "Check a store.", [("verify /store", "all")])
    add_options(parser, Stores)
    assert require_store(parser.parse_args(given).store) == "/store"


def test_a_missing_store_is_an_error() -> None:
    parser = job_parser("verify", "Check a store.", [("verify /store", "all")])
    add_options(parser, Stores)
    with pytest.raises(JobError, match="no store is named"):
        require_store(parser.parse_args([]).store)


@pytest.mark.parametrize(
    ("text", "size"),
    [("6000000", 6_000_000), ("1GiB", 1 << 30), ("128 MiB", 128 << 20), ("1.5KiB", 1536), ("1e3", 1000)],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert parse_file_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "MiB", "1.5", "1.0001KiB", "1MB", "nan", "inf", "9" * 30, "1e400GiB"])
def test_another_text_is_not_a_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number of bytes, or a size as in 16MiB"):
        parse_file_size(text)


@pytest.mark.parametrize("place", ["gs://bucket/store", "S3://bucket/store", "file:///data/store", "dbfs:/store"])
def test_a_folder_to_write_to_is_no_uri(place: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected the path of a local folder"):
        parse_folder_path(place)


@pytest.mark.parametrize("path", ["/data/store", "store", "", "c:/store", "a:b/store"])
def test_a_folder_to_write_to_is_any_path(path: str) -> None:
    assert parse_folder_path(path) == Path(path)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (broker, ["--store", "gs://bucket/x"]),
        (demo, ["--dir", "gs://bucket/x"]),
        (rebuild, ["--store", "/store", "--out", "gs://bucket/x"]),
        (restore, ["--lake", "/lake", "--out", "gs://bucket/x"]),
    ],
)
def test_a_command_that_writes_a_store_refuses_a_uri(
    command: ModuleType, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == ExitCode.USAGE
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("archive --store s --lake l --partition-mib 0", "--partition-mib: '0': expected a whole number, 1 or more"),
        ("archive --store s --lake l --hbase h --hbase-option a", "--hbase-option: 'a': expected NAME=VALUE"),
        ("demo --orders 0", "--orders: '0': expected a whole number, 1 or more"),
        ("dlq --lake l --samples 21", "--samples: '21': expected a whole number, 0 to 20"),
        ("dump s --index --index-slots 0 --index-entries 40", "--index-slots: '0': expected a whole number, 1 or more"),
        ("dump s --index --index-slots 10 --index-entries -5", "--index-entries: '-5': expected a whole number, 1 or"),
        ("erase --lake l --key a --vacuum-after 1h", "'1h': expected 1d or more: a running job must be done"),
        ("lineage --lake l --offset 4096", "--offset: '4096': expected BROKER:OFFSET"),
        ("lineage --lake l --offset broker-a:-1", "--offset: 'broker-a:-1': expected BROKER:OFFSET"),
        (
            f"lineage --lake l --offset broker-a:{'9' * 5_000}",
            "expected BROKER:OFFSET, as in broker-a:4096",
        ),
        ("maintain --lake l --vacuum-after 1h", "--vacuum-after: '1h': expected 1d or more: a running archive must"),
        ("maintain --lake l --target-mib 0", "--target-mib: '0': expected a whole number, 1 or more"),
        ("ship --store s --to t --interval 0s", "--interval: '0s': expected 1s or more"),
        ("snapshot --store s --lake l --every 0s", "--every: '0s': expected 1s or more"),
        ("tps --lake l --top -1", "--top: '-1': expected a whole number, 0 or more"),
        ("tps --lake l --window 0s", "--window: '0s': expected 1s or more"),
    ],
)
def test_a_value_that_is_not_possible_is_refused(command: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    job, *words = command.split()
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"commitlake.jobs.{job}.command").main(words)
    assert error in capsys.readouterr().err
