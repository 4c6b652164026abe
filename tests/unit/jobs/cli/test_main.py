"""Tests of the command `commitlake` itself: help, version, configuration, exit codes, and imports."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlake.connectors import rocketmq
from commitlake.connectors.lake.packs.errors import PackStoreError
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.reading.errors import DamagedLogError, StoreError
from commitlake.connectors.reading.store_identity_check import StoreReplacedError
from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.jobs.arguments.times import join_options_and_times, parse_time
from commitlake.jobs.cli import main as cli
from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.options import add_options
from commitlake.jobs.report.output_formats import OutputArguments
from commitlake.schemas.errors import ConcurrentRunError, ExitCode, UsageError

pytestmark = pytest.mark.usefixtures("own_folder")

ROOT = Path(__file__).parents[4]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new Python process."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# --- help and version ---


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_job_and_the_exit_codes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name, purpose in cli.JOBS.items():
        assert re.search(rf"^  {name} +{re.escape(purpose)}$", out, re.MULTILINE)
    for code in ExitCode:
        assert re.search(rf"\b{int(code)} \w", out)


def test_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"commitlake {importlib.metadata.version('commitlake')}\n"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("archiv", "archive"), ("querry", "query"), ("dmup", "dump"), ("zzz", None), ("--nothing", None)],
)
def test_an_unknown_job_is_refused_with_the_nearest_name(
    given: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"there is no job {given!r}" in err
    assert ("Did you mean" in err) == (meant is not None)
    if meant:
        assert f"Did you mean {meant!r}?" in err
    assert "commitlake --help lists the jobs" in err


@pytest.mark.parametrize("name", sorted(cli.JOBS))
def test_the_help_of_a_job_shows_its_own_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    out = ANSI.sub("", capsys.readouterr().out)
    assert "examples:" in out
    assert f"  commitlake {name}" in out
    assert "COMMITLAKE_<OPTION>" in out
    for option in ("--config", "--quiet", "--verbose"):
        assert option in out


def shell_words(command: str) -> list[str]:
    """Return the words of an example up to a pipe or a redirection, without `commitlake JOB`."""
    import itertools
    import shlex

    return list(itertools.takewhile(lambda word: word not in {"|", ">"}, shlex.split(command)))[1:]


@pytest.mark.parametrize("name", sorted(cli.JOBS))
def test_the_parser_of_a_job_accepts_its_examples(name: str) -> None:
    module = importlib.import_module(f"commitlake.jobs.{name}.command")
    command_class = module.main.__self__
    assert command_class.EXAMPLES
    for command, purpose in command_class.EXAMPLES:
        assert purpose
        assert command.split()[0] == name
        parser = module.build_parser()
        times = [text for action in parser._actions if action.type is parse_time for text in action.option_strings]
        parser.parse_args(join_options_and_times(shell_words(command), *times))


# --- configuration ---


def read_config(*arguments: str) -> argparse.Namespace:
    """Return the parsed arguments of a job with options of every form."""
    parser = job_parser("fill", "Fill a lake.", [("fill --store a", "an example")])
    parser.add_argument("--store", default="default")
    parser.add_argument("--max-rows", type=int, default=1)
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--body", choices=("none", "text"), default="none")
    return parser.parse_args(list(arguments))


def test_the_default_is_used_if_nothing_else_sets_a_value() -> None:
    assert read_config().store == "default"


def test_the_users_file_overrides_the_default(own_folder: Path) -> None:
    (own_folder / ".config").mkdir()
    file = own_folder / ".config" / "commitlake.toml"
    file.write_text('[fill]\nstore = "home"\nmax-rows = 7\n[other]\nstore = "x"\n')
    assert (read_config().store, read_config().max_rows) == ("home", 7)


@pytest.mark.parametrize(("folder", "store"), [("{own}/settings", "xdg"), ("settings", "home"), ("", "home")])
def test_the_users_file_is_in_the_xdg_config_folder(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, folder: str, store: str
) -> None:
    for name, value in ((".config", "home"), ("settings", "xdg")):
        (own_folder / name).mkdir()
        (own_folder / name / "commitlake.toml").write_text(f'[fill]\nstore = "{value}"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", folder.format(own=own_folder))
    assert read_config().store == store


@pytest.mark.parametrize("name", ["conf/commitlake.toml", "commitlake.toml", "conf/commitlake.example.toml"])
def test_a_file_in_the_current_folder_is_read_only_if_it_is_named(own_folder: Path, name: str) -> None:
    (own_folder / name).parent.mkdir(exist_ok=True)
    (own_folder / name).write_text('[fill]\nstore = "planted"\n')
    assert read_config().store == "default"
    assert read_config("--config", name).store == "planted"


def test_a_named_file_overrides_the_users_file(own_folder: Path) -> None:
    (own_folder / ".config").mkdir()
    (own_folder / ".config" / "commitlake.toml").write_text('[fill]\nstore = "file"\nmax-rows = 7\n')
    (own_folder / "mine.toml").write_text('[fill]\nstore = "mine"\ntopic = ["a", "b"]\nbody = "text"\nverbose = true\n')
    config = read_config("--config", "mine.toml")
    assert (config.store, config.max_rows, config.topic, config.body) == ("mine", 7, ["a", "b"], "text")
    assert config.verbose


def test_the_environment_overrides_files(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_folder / "mine.toml").write_text('[fill]\nstore = "file"\nmax-rows = 7\n')
    monkeypatch.setenv("COMMITLAKE_STORE", "environment")
    monkeypatch.setenv("COMMITLAKE_MAX_ROWS", "8")
    config = read_config("--config", "mine.toml")
    assert (config.store, config.max_rows) == ("environment", 8)


def test_an_argument_overrides_environment_and_files(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_folder / "mine.toml").write_text('[fill]\nstore = "file"\ntopic = ["a"]\n')
    monkeypatch.setenv("COMMITLAKE_STORE", "environment")
    config = read_config("--config", "mine.toml", "--store", "argument", "--topic", "b")
    assert (config.store, config.topic) == ("argument", ["b"])


def test_other_variables_with_the_prefix_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_TEST_CACHE", "/tmp/x")
    monkeypatch.setenv("COMMITLAKE_NOTHING", "1")
    assert read_config().store == "default"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[fill]\nmax-rows = "many"\n', "max-rows"),
        ('[fill]\nbody = "html"\n', "body"),
        ("[fill\n", "TOML"),
        ('[fill]\nstoer = "a"\n', "stoer"),
    ],
)
def test_a_wrong_value_in_a_file_is_a_usage_error(
    own_folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (own_folder / "mine.toml").write_text(text)
    with pytest.raises(SystemExit) as ended:
        read_config("--config", "mine.toml")
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "value",
    [
        "0x" + "f" * 6000,
        "0b" + "1" * 20_000,
        "9223372036854775808",
        "[" * 5000 + "]" * 5000,
        "{a=" * 3000 + "1" + "}" * 3000,
    ],
    ids=["hexadecimal", "binary", "64 bits", "lists", "tables"],
)
def test_numbers_and_depths_that_toml_does_not_allow_are_usage_errors(
    own_folder: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    (own_folder / "mine.toml").write_text(f"[fill]\nmetrics-file = {value}\n")
    job = job_parser("fill", "Fill a lake.", [])
    with pytest.raises(SystemExit) as ended:
        run_job(job, lambda _: ExitCode.OK, ["--config", "mine.toml"])
    assert ended.value.code == ExitCode.USAGE
    assert "mine.toml: expected" in capsys.readouterr().err


def test_a_wrong_value_in_the_environment_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMMITLAKE_MAX_ROWS", "many")
    with pytest.raises(SystemExit) as ended:
        read_config()
    assert ended.value.code == 2
    assert "many" in capsys.readouterr().err


def test_a_missing_file_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_config("--config", "nowhere.toml")
    assert ended.value.code == 2
    assert "nowhere.toml" in capsys.readouterr().err


def test_abbreviated_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_config("--sto", "a")
    assert "--sto" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "meant"), [("--tpoic", "--topic"), ("--max-row", "--max-rows"), ("--xyz", None), ("surplus", None)]
)
def test_an_unknown_option_is_refused_with_the_nearest(
    given: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read_config("--store", "a", given)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert f"unrecognized arguments: {given}" in err
    assert ("Did you mean" in err) == (meant is not None)
    assert meant is None or f"Did you mean '{meant}'?" in err


def test_a_store_without_its_option_is_refused_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["archive", str(tmp_path), "--lake", "lake"])
    assert ended.value.code == 2
    assert f"Did you mean '--store {tmp_path}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "form"),
    [
        ({"COMMITLAKE_OUTPUT": "csv"}, "csv"),
        ({"COMMITLAKE_FORMAT": "json", "COMMITLAKE_OUTPUT": "csv"}, "json"),
        ({}, "table"),
    ],
)
def test_variables_of_both_names_of_the_format_option_are_read(
    variables: dict[str, str], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    parser = job_parser("fill", "Fill a lake.", [("fill", "an example")])
    add_options(parser, OutputArguments)
    assert parser.parse_args([]).output == form


@pytest.mark.parametrize("option", ["--format", "--output"])
def test_the_format_option_has_two_names(option: str) -> None:
    parser = job_parser("fill", "Fill a lake.", [("fill", "an example")])
    add_options(parser, OutputArguments)
    assert parser.parse_args([option, "jsonl"]).output == "jsonl"


def test_help_does_not_show_older_names(capsys: pytest.CaptureFixture[str]) -> None:
    parser = job_parser("fill", "Fill a lake.", [("fill", "an example")])
    add_options(parser, OutputArguments)
    parser.print_help()
    shown = capsys.readouterr().out
    assert "--format {table" in shown
    assert "--output" not in shown


def test_quiet_and_verbose_exclude_each_other() -> None:
    with pytest.raises(SystemExit):
        read_config("--quiet", "--verbose")


def test_a_time_two_hours_ago_is_accepted_from_environment_and_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    from commitlake.jobs.query import command as query

    monkeypatch.setenv("COMMITLAKE_FROM", "-2h")
    assert query.build_parser().parse_args(["--lake", "l"]).start is not None


# --- exit codes ---


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Restore the root logger, which jobs set up for their process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run_with(what: Callable[[], ExitCode], *arguments: str) -> int:
    """Return the exit code of a job that calls this function."""
    return int(run_job(job_parser("fill", "Fill.", []), lambda _: what(), arguments))


def raising(error: BaseException) -> Callable[[], ExitCode]:
    """Return a job that raises an error."""

    def job() -> ExitCode:
        raise error

    return job


@pytest.mark.parametrize("code", list(ExitCode))
@pytest.mark.usefixtures("root_logger")
def test_the_return_value_of_a_job_is_its_exit_code(code: ExitCode) -> None:
    assert run_with(lambda: code) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JobError("a sentence", "a hint"), 2),
        (JobError("a sentence", exit_code=ExitCode.REFUSED), 4),
        (StoreError("a sentence"), 2),
        (UsageError("a sentence"), 2),
        (LakeError("a sentence"), 2),
        (DamagedLogError("a sentence"), 3),
        (StoreReplacedError("a sentence"), 4),
        (ConcurrentRunError("a sentence"), 4),
        (rocketmq.ClientOptionError("a sentence"), 2),
        (rocketmq.InvalidMessageError("a sentence"), 2),
        (rocketmq.UnreachableError("a sentence"), 1),
        (rocketmq.ProtocolError("a sentence"), 1),
        (rocketmq.NoRouteError("a sentence"), 1),
    ],
)
@pytest.mark.usefixtures("root_logger")
def test_a_user_error_is_one_line_without_a_trace(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(raising(error)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "commitlake fill: error: a sentence"
    assert "Traceback" not in err
    assert ("a hint" in err) == bool(getattr(error, "hint", ""))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (S3Error("no bucket", "Make it"), 2),
        (S3UnavailableError("a busy server", "Later"), 1),
        (PackStoreError("s3://bucket", "a bucket", "none", "Make it"), 2),
        (PackStoreError("s3://bucket", "a bucket", "a busy server", "Later", is_transient=True), 1),
    ],
)
@pytest.mark.usefixtures("root_logger")
def test_transient_and_permanent_errors_have_different_exit_codes(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(raising(error)) == code
    assert capsys.readouterr().err == f"commitlake fill: error: {error}\n"


class PanicException(BaseException):
    """The exception that a panic in a Rust library becomes."""


@pytest.mark.usefixtures("root_logger")
def test_a_panic_is_printed_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(raising(PanicException("Invalid object store url"))) == 1
    assert capsys.readouterr().err.splitlines()[0] == "commitlake fill: error: PanicException: Invalid object store url"
    with pytest.raises(GeneratorExit):
        run_with(raising(GeneratorExit()))


@pytest.mark.usefixtures("root_logger")
def test_an_internal_error_names_its_class_and_the_verbose_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(raising(ZeroDivisionError("by\nzero"))) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[0] == "commitlake fill: error: ZeroDivisionError: by"
    assert "--verbose shows the stack trace" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("root_logger")
def test_verbose_shows_the_stack_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(raising(ZeroDivisionError()), "--verbose") == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ZeroDivisionError: no message" in err


@pytest.mark.usefixtures("root_logger")
def test_an_interrupt_is_reported_with_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_with(raising(KeyboardInterrupt())) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(cli.JOBS))
def test_an_unknown_option_of_a_job_is_a_usage_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--no-such-option"])
    assert ended.value.code == 2
    assert "commitlake " + name in capsys.readouterr().err


def test_an_archive_of_a_missing_store_is_refused_before_spark_starts(tmp_path: Path) -> None:
    done = run_python(
        "import sys\nfrom commitlake.jobs.cli import main as cli\ncode = cli.main(sys.argv[1:])\n"
        "assert 'pyspark.core.context' not in sys.modules or not "
        "sys.modules['pyspark.core.context'].SparkContext._active_spark_context\nsys.exit(code)",
        "archive", "--store", str(tmp_path / "nowhere"), "--lake", str(tmp_path / "lake"),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "lake").exists()


# --- start ---


def test_the_command_imports_no_job_and_no_large_package() -> None:
    done = run_python(
        "import sys\nimport commitlake.jobs.cli.main\n"
        "found = {name.removeprefix('commitlake.').split('.')[0] for name in sys.modules}\n"
        "print(sorted(found & {'pyspark', 'py4j', 'numpy', 'pandas', 'pyarrow', 'numba', 'deltalake', 'rich', "
        "'configargparse', 'connectors', 'schemas', 'pipelines'}))"
    )
    assert (done.returncode, done.stdout) == (0, "[]\n")


@pytest.mark.parametrize("name", ["query", "dump", "archive", "verify"])
def test_arguments_are_checked_before_large_packages_load(name: str) -> None:
    large = {"pyspark", "py4j", "pandas", "numba"} | (set() if name == "query" else {"pyarrow", "deltalake"})
    done = run_python(
        f"import sys\nimport commitlake.jobs.{name}.command\n"
        f"print(sorted({{n.split('.')[0] for n in sys.modules}} & {large}))"
    )
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_the_installed_command_is_this_one() -> None:
    command = Path(sys.executable).parent / "commitlake"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, f"commitlake {importlib.metadata.version('commitlake')}\n")
