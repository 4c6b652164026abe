"""Checks of settings in a TOML file or the environment: unknown names, and values that are not valid text.

A table without a job of its name, and a key that is not an option of the job, are errors. A variable `COMMITLAKE_…`
that is not an option of any job gives a warning, because it may belong to another program. An option of another job
gives no warning, because all jobs may share an environment.

A text with bytes that are not UTF-8 is an error, because neither tables nor brokers have such names.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from commitlake.jobs.arguments.similar_names import print_warning, suggest_similar_name
from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.cli.options import ENVIRONMENT_PREFIX, environment_variable_of
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.safe_store_files import describe_file_type
from commitlake.schemas.toml_text import MAX_BYTES, TomlError, parse_toml

OTHER_VARIABLES = frozenset(
    {
        "COMMITLAKE_PYTHON",
        "COMMITLAKE_JARS",
        "COMMITLAKE_GCS_ENDPOINT",
        "COMMITLAKE_BROKER_ACCESS_KEY",
        "COMMITLAKE_BROKER_SECRET_KEY",
        "COMMITLAKE_ROCKETMQ_ACCESS_KEY",
        "COMMITLAKE_ROCKETMQ_SECRET_KEY",
        "COMMITLAKE_ROCKETMQ_SECURITY_TOKEN",
        "COMMITLAKE_ROCKETMQ_TLS_CONFIG",
        "COMMITLAKE_TLS_SERVER_KEY_PASSWORD",
        "COMMITLAKE_TLS_CLIENT_KEY_PASSWORD",
        "COMMITLAKE_EVIDENCE_SECRET",
        "COMMITLAKE_MASK_KEY",
    }
)
"""Variables that are not options of a job."""
_TEST_PREFIX = f"{ENVIRONMENT_PREFIX}TEST_"

_MAX_BITS = 63


class SettingsError(CommitLakeError):
    """Error for a setting with an unknown name, or with a value that no job can use."""


def check_settings_file(path: Path, job: str, parser: argparse.ArgumentParser) -> None:
    """Raise an error for tables of unknown jobs, and for keys in this job's table that are not its options.

    Args:
        path: a TOML file. If it cannot be read, the parser reports it.
        job: name of the job.

    Raises:
        SettingsError: for the first of them.
    """
    try:
        settings = parse_toml(_read_settings_text(path))
    except TomlError as error:
        raise SettingsError(f"{path}: {error}") from None
    except (OSError, ValueError):
        return
    _check_integer_sizes(path, settings)
    for name, table in settings.items():
        if name not in {*JOBS, job}:
            what = "table" if isinstance(table, dict) else "key"
            raise SettingsError(
                f"{path}: no job has the name {name!a}, so its {what} is not read.{suggest_similar_name(name, JOBS)}"
            )
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: expected {name!a} as the table [{name}], found a value")
    options = parser_option_names(parser)
    for key in settings.get(job, {}):
        if key not in options:
            raise SettingsError(
                f"{path}: the table [{job}] has the key {key!a}, which is not an option of this "
                f"job.{suggest_similar_name(key, options)}"
            )


def _read_settings_text(path: Path) -> str:
    """Return the text of a settings file, which must not be a pipe, because it is read twice."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise SettingsError(f"{path}: expected a file with settings, found {describe_file_type(path.stat().st_mode)}")
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{path}: expected a settings file of at most {MAX_BYTES:,} bytes, found a larger one")
    return data.decode("utf-8")


def _check_integer_sizes(path: Path, settings: Mapping[str, object]) -> None:
    """Raise an error for integers of more than 64 bits, which TOML forbids and Python cannot always print."""
    waiting: list[object] = [settings]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise SettingsError(
                f"{path}: expected whole numbers of at most 64 bits, found one of {value.bit_length()} bits"
            )


def check_environment(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Warn of environment variables that look like options but belong to no job."""
    own = {environment_variable_of(option) for option in parser_option_names(parser)}
    for name in environment:
        if not name.startswith(ENVIRONMENT_PREFIX) or name.startswith(_TEST_PREFIX) or name in own | OTHER_VARIABLES:
            continue
        if name not in VARIABLES and name not in environment_variables_of_jobs():
            near = suggest_similar_name(name, own | VARIABLES)
            print_warning(parser.prog, f"the variable {name} is not an option of any job.{near}")


def check_argument_texts(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Raise an error for texts that contain NUL or bytes that could not be decoded.

    The name of a file may have any bytes except NUL, which only a TOML file can contain.

    Raises:
        SettingsError: for the first of them.
    """
    for action in parser._actions:  # noqa: SLF001 (no other way)
        given = getattr(arguments, action.dest, None)
        for value in given if isinstance(given, list) else [given]:
            if not isinstance(value, str | Path):
                continue
            names = option_names_in_help(action)
            name = names[-1] if names else str(action.metavar or action.dest)
            if "\0" in str(value):
                raise SettingsError(f"{name}: expected text without NUL characters, found {str(value)!a}")
            if isinstance(value, str) and action.metavar != "FILE" and not _is_valid_text(value):
                raise SettingsError(f"{name}: expected text in UTF-8, found {value!a}")


def _is_valid_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_settings_file(parser: argparse.ArgumentParser, argv: Sequence[str]) -> Path | None:
    """Return the path of the settings file that a job will read: the named one, otherwise the first default one."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("--config")
    try:
        named = finder.parse_known_args(list(argv))[0].config or os.environ.get(f"{ENVIRONMENT_PREFIX}CONFIG")
    except argparse.ArgumentError:
        return None
    defaults = getattr(parser, "_default_config_files", [])
    return Path(named) if named else next((Path(path) for path in defaults if Path(path).is_file()), None)


def option_names_in_help(action: argparse.Action) -> list[str]:
    """Return the names of an option that the help shows: short names and the first long one, without older names."""
    long = [name for name in action.option_strings if name.startswith("--")]
    return [name for name in action.option_strings if name not in long[1:]]


def parser_option_names(parser: argparse.ArgumentParser) -> set[str]:
    """Return the names of a parser's options, without the dashes."""
    strings = (string for action in parser._actions for string in action.option_strings)  # noqa: SLF001 (no other way)
    return {string.removeprefix("--") for string in strings if string.startswith("--")}


def environment_variables_of_jobs() -> set[str]:
    """Return the environment variables of all jobs' options."""
    parsers = (importlib.import_module(f"commitlake.jobs.{name}.command").build_parser() for name in JOBS)
    return {environment_variable_of(option) for parser in parsers for option in parser_option_names(parser)}


VARIABLES = frozenset(
    environment_variable_of(option)
    for option in (
        "accounts",
        "advertise",
        "at",
        "available-now",
        "batch-queue-entries",
        "bodies",
        "bodies-kept",
        "bodies-moved",
        "body",
        "body-as",
        "body-out",
        "broker",
        "broker-conf",
        "broker-id",
        "broker-time-zone",
        "broker-version",
        "clean-forcibly-ratio",
        "clock-tolerance",
        "cluster",
        "columns",
        "config",
        "consumequeue",
        "count",
        "delay-levels",
        "delete-hours",
        "dir",
        "disk-percent",
        "dry-run",
        "engine",
        "findings",
        "flush",
        "follow",
        "from",
        "from-offset",
        "ha-listen",
        "ha-master",
        "hbase",
        "hbase-kept",
        "hbase-option",
        "hbase-table",
        "help",
        "html",
        "id",
        "in-place",
        "index",
        "index-entries",
        "index-slots",
        "index-tags",
        "keep",
        "key",
        "kind",
        "lake",
        "layout",
        "limit",
        "listen",
        "local",
        "max-connections",
        "max-connections-per-address",
        "max-groups",
        "max-message-kib",
        "max-mib-per-run",
        "max-topics",
        "name",
        "namesrv",
        "no-auto-create",
        "no-bodies",
        "no-indexes",
        "no-keys",
        "no-quality",
        "offsets",
        "on-corrupt",
        "on-gap",
        "on-missing",
        "order-by",
        "orders",
        "out",
        "output",
        "partition-mib",
        "processes",
        "quality-page",
        "queue",
        "queue-entries",
        "queue-file-size",
        "quiet",
        "raw",
        "register",
        "repair",
        "reserved-hours",
        "role",
        "s3-endpoint",
        "s3-region",
        "salvage",
        "segment-mib",
        "segment-size",
        "slave-read",
        "slave-timeout",
        "store",
        "stored-body",
        "table",
        "target-mib",
        "threads",
        "tls-config",
        "tls-mode",
        "to",
        "to-offset",
        "topic",
        "transaction-check-interval",
        "transaction-check-max",
        "transaction-timeout",
        "trigger",
        "vacuum-after",
        "verbose",
        "via",
        "warning-level-ratio",
        "where",
        "within",
    )
)
"""Variables of all jobs' options. The list is stored here because building every job's parser is slow."""
