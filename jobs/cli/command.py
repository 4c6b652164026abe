"""The base of every job's command line: options, errors, exit codes.

A command is a `Command`, whose fields declare its options. `Command.main` parses a command line, runs the command, and
converts the outcome to an exit code:

    0  success
    1  an internal error, or a transient one, such as a network failure: --verbose shows the stack trace
    2  wrong usage, a wrong path, or an invalid file or lake
    3  the job ran, and found damage, a gap, a difference, messages of a store that it does not read, or a segment
       about to be lost
    4  refused: other runs committed first too often, or a store is not the one that was archived
    130  interrupted
    141  standard output was closed by its reader, as `head` does
    143  ended by SIGTERM

Each error class of this project has its exit code (`commitlake.schemas.errors`), wherever it is raised. Signals and
closed streams are handled in `jobs.cli.process`.
"""

from __future__ import annotations

import argparse
import copy
import errno
import io
import logging
import os
import re
import signal
import sys
import textwrap
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TextIO

import configargparse
from rich_argparse import RawDescriptionRichHelpFormatter

from commitlake.connectors.catalog.names import is_catalog_location
from commitlake.connectors.reading.settings_files import use_settings_file
from commitlake.connectors.reading.unread_warnings import watch_unread_warnings
from commitlake.connectors.runtime.blocked_imports import disable_pandas_import
from commitlake.connectors.storage.uris import absolute_path_or_uri
from commitlake.connectors.worker_errors import extract_worker_error
from commitlake.jobs.arguments.times import join_options_and_times, parse_time, to_local_times
from commitlake.jobs.cli.options import (
    ENVIRONMENT_PREFIX,
    AppendAction,
    OneOf,
    Options,
    add_options,
    environment_variable_of,
    find_option_conflict,
    flag,
    option,
    option_values,
    options_with_fields,
)
from commitlake.jobs.cli.process import OutputError, received_stop_signal, runs_in_own_process
from commitlake.jobs.cli.terminal import guard_standard_streams, print_line, unguarded_stream
from commitlake.jobs.report.output_formats import Display, use_display
from commitlake.jobs.report.text_table import wrap_lines
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.safe_store_files import restricted_umask

_TEXT_WIDTH = 100
_CONFIG_FILE = "commitlake.toml"


class JobError(CommitLakeError):
    """An error for the user: one sentence, and a hint on what to do about it."""

    exit_code: ExitCode

    def __init__(self, message: str, hint: str = "", exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message, hint=hint, exit_code=exit_code)


_LOUDNESS = OneOf()


@dataclass(frozen=True, kw_only=True)
class CommonOptions(Options):
    """Options of every command."""

    quiet: bool = flag("print only errors, no progress and no summary", one_of=_LOUDNESS)
    verbose: bool = flag("print more details, and stack traces", one_of=_LOUDNESS)
    raw: bool = flag(
        "print control characters in texts unchanged; without it, and always in tables, they are shown as \\x1b"
    )
    log_format: str = option(
        "print standard error as text, or as one JSON object per line (default: text)",
        choices=("text", "json"),
        default="text",
    )
    metrics_file: str | None = option(
        "write the run's duration, exit code and counts to this file, as Prometheus text", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class Command(CommonOptions, ABC):
    """Base class of the commands, whose fields are command line options."""

    NAME: ClassVar[str]
    DESCRIPTION: ClassVar[str]
    """Description for `--help`."""
    EXAMPLES: ClassVar[Sequence[tuple[str, str]]]
    """Command lines (without `commitlake`), each with its purpose."""
    DEFAULTS: ClassVar[Mapping[str, object]] = {}
    """Values that the code for all commands reads from parsed arguments: `spark`, `reports_places`."""

    @abstractmethod
    def run(self) -> ExitCode:
        """Run the command with the values of its fields, and return its exit code."""

    def resolve_options(self) -> Self:
        """Return the command with deprecated options converted, and conflicting environment variables ignored."""
        return self

    @classmethod
    def parser(cls) -> argparse.ArgumentParser:
        """Return the parser of the command's options."""
        parser = job_parser(cls.NAME, cls.DESCRIPTION, cls.EXAMPLES)
        parser.set_defaults(**cls.DEFAULTS)
        add_options(parser, cls, excluded_class=CommonOptions)
        return parser

    @classmethod
    def from_parsed_arguments(cls, arguments: argparse.Namespace) -> Self:
        """Return a command whose fields have the values of parsed arguments.

        Raises:
            JobError: for a combination of options that is refused.
        """
        command = cls(**option_values(cls, arguments)).resolve_options()
        if (refused := find_option_conflict(command)) is not None:
            raise JobError(*refused)
        return command

    @classmethod
    def parse(cls, *words: str) -> Self:
        """Create the command from the words that follow its name on a command line."""
        return cls.from_parsed_arguments(cls.parser().parse_args(words))

    @classmethod
    def main(cls, argv: Sequence[str] | None = None) -> int:
        """Parse a command line, run the command, and return its exit code.

        Args:
            argv: the command line without the command's name; by default that of this process.
        """
        words = sys.argv[1:] if argv is None else argv
        times = [
            entry.command_line_names(name)[0]
            for name, entry in options_with_fields(cls)
            if entry.settings.get("type") is parse_time
        ]
        return run_job(
            cls.parser(),
            lambda arguments: cls.from_parsed_arguments(arguments)._run_without_pandas(),  # noqa: SLF001 (its own)
            join_options_and_times(words, *times),
        )

    def _run_without_pandas(self) -> ExitCode:
        """Run the command; skip the slow import of pandas if the process runs only this command, without Spark."""
        if runs_in_own_process() and not getattr(self, "is_on_spark", self.DEFAULTS.get("spark", True)):
            disable_pandas_import()
        return self.run()


def job_parser(name: str, description: str, examples: Sequence[tuple[str, str]]) -> argparse.ArgumentParser:
    """Return a parser that reads arguments, then the environment, then a TOML file's table `[name]`, then defaults.

    Args:
        description: description of the job, for `--help`.
        examples: command lines (without `commitlake`), each with its purpose.
    """
    parser: argparse.ArgumentParser = _Parser(
        prog=f"commitlake {name}",
        description="\n".join(textwrap.wrap(description, width=_TEXT_WIDTH)),
        epilog=_examples_text(examples),
        formatter_class=_HelpFormatter,
        auto_env_var_prefix=ENVIRONMENT_PREFIX,
        add_env_var_help=False,
        add_config_file_help=False,
        config_file_parser_class=configargparse.TomlConfigParser([name]),
        default_config_files=[str(_user_settings_file())],
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        is_config_file=True,
        metavar="FILE",
        help=f"TOML file with a table for each job (default: ~/.config/{_CONFIG_FILE})",
    )
    add_options(parser, CommonOptions)
    return parser


class _HelpFormatter(RawDescriptionRichHelpFormatter):
    """Help formatter that hides the older names of options."""

    def add_argument(self, action: argparse.Action) -> None:
        """Add an option to the help, without its older names."""
        from commitlake.jobs.cli.settings_check import option_names_in_help

        shown = copy.copy(action)
        shown.option_strings = option_names_in_help(action)
        super().add_argument(shown)


class _Parser(configargparse.ArgumentParser):  # type: ignore[misc]  # configargparse has no types
    """Argument parser with optional colours in its help, which escapes control characters in error messages."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.register("action", "append", AppendAction)
        self._given: list[str] = []

    def add_argument_group(self, *arguments: Any, **named: Any) -> Any:
        """Add a group of options, whose description is wrapped."""
        group = super().add_argument_group(*arguments, **named)
        if group.description:
            group.description = "\n".join(textwrap.wrap(group.description, width=_TEXT_WIDTH))
        return group

    def print_help(self, file: TextIO | None = None) -> None:
        """Print the help to a stream, by default standard output."""
        super().print_help(unguarded_stream(file or sys.stdout))

    def print_usage(self, file: TextIO | None = None) -> None:
        """Print the usage to a stream, by default standard output."""
        super().print_usage(unguarded_stream(file or sys.stdout))

    def parse_known_args(self, *arguments: Any, **named: Any) -> Any:
        """Parse arguments, and also read environment variables that have an option's older name."""
        environment = dict(named.pop("env_vars", None) or os.environ)
        given = arguments[0] if arguments else named.get("args")
        self._given = sys.argv[1:] if given is None else list(given)
        for action in self._actions:
            first, *older = [
                environment_variable_of(name) for name in action.option_strings if name.startswith("--")
            ] or [""]
            for name in older:
                # It may be meant for another job: --body of query is a flag, and an older name of dump's --body-as.
                if name in environment and (action.choices is None or environment[name] in action.choices):
                    environment.setdefault(first, environment[name])
        # COMMITLAKE_SPARK may be meant for commands that run here by default; the two options exclude each other.
        if environment_variable_of("local") in environment:
            environment.pop(environment_variable_of("spark"), None)
        return super().parse_known_args(*arguments, env_vars=environment, **named)

    def error(self, message: str) -> NoReturn:
        """Print a usage error with the most similar option and a hint on `--help`, and exit."""
        text = f"{self.prog}: error: {message}{self._suggest_option(message)}"
        print_line(f"{text}{'' if text.endswith(('.', '?')) else '.'} '{self.prog} --help' shows all options")
        raise SystemExit(ExitCode.USAGE)

    def _suggest_option(self, message: str) -> str:
        """Return "Did you mean" with the nearest known option, or with `--store` if a folder was given without it."""
        from commitlake.jobs.arguments.similar_names import suggest_similar_option
        from commitlake.jobs.cli.settings_check import option_names_in_help

        known = [name for action in self._actions for name in action.option_strings]
        shown = [
            name
            for action in self._actions
            if action.help != argparse.SUPPRESS
            for name in option_names_in_help(action)
        ]
        options = [name for name in shown if name.startswith("--")]
        if re.match(r"the following arguments are required|one of the arguments .* is required", message):
            given = (word.partition("=")[0] for word in self._given)
            unknown_options = [word for word in given if re.fullmatch(r"--[\w-]+", word) and word not in known]
            if not unknown_options:
                return ""
            suggestion = suggest_similar_option(unknown_options[0], options)
            return f"; {unknown_options[0]} is not an option" + (f".{suggestion}" if suggestion else "")
        unknown = re.match(r"unrecognized arguments: (?:.* )??(--?[\w-]+)", message)
        if unknown is None:
            folder = message.removeprefix("unrecognized arguments: ")
            is_folder = os.path.isdir(folder)  # noqa: PTH112 (a Path raises an error for a name that is too long)
            return f". Did you mean '--store {folder}'?" if "--store" in known and is_folder else ""
        suggestion = suggest_similar_option(unknown[1], options)
        return f".{suggestion}" if suggestion else ""


def _user_settings_file() -> Path:
    """Return the user's own settings file; a file in the working directory is never read without being named."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (given if given.is_absolute() else Path("~/.config").expanduser()) / _CONFIG_FILE


def _examples_text(examples: Sequence[tuple[str, str]]) -> str:
    lines = [f"  # {purpose}\n  commitlake {command}" for command, purpose in examples]
    options = (
        f"Every option can also be set as {ENVIRONMENT_PREFIX}<OPTION> in the environment or in a TOML file (--config)."
    )
    return "examples:\n" + "\n".join(lines) + "\n\n" + options


def run_job(
    parser: argparse.ArgumentParser, job: Callable[[argparse.Namespace], ExitCode], argv: Sequence[str] | None
) -> int:
    """Parse the arguments, run the job, and turn its result or error into an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files and topics may be invalid UTF-8, which must not stop the output.
        sys.stdout.reconfigure(errors="backslashreplace")
    with guard_standard_streams(edit_stderr=_make_stderr_editor(argparse.Namespace(log_format="text"))):
        _check_setting_names(parser, sys.argv[1:] if argv is None else argv)
        arguments = parser.parse_args(argv)
        if getattr(arguments, "local_time", False) and getattr(arguments, "html", None):
            parser.error("--local-time and --html cannot be used together: pages are in UTC")
        _check_argument_texts(parser, arguments)
    _make_paths_absolute(arguments)
    with ExitStack() as streams:
        if arguments.log_format == "json":
            from commitlake.jobs.cli.json_log import print_stderr_as_json

            streams.enter_context(print_stderr_as_json(_job_name(parser)))
        streams.enter_context(guard_standard_streams(is_raw=arguments.raw, edit_stderr=_make_stderr_editor(arguments)))
        streams.enter_context(use_display(_display_settings(arguments)))
        return _run_with_metrics(parser, job, arguments)


def _make_stderr_editor(arguments: argparse.Namespace) -> Callable[[str], str]:
    """Return the function that edits text on standard error: local times if requested, lines that fit the terminal."""
    is_local = getattr(arguments, "local_time", False)
    is_folded = arguments.log_format != "json" and sys.stderr is not None and sys.stderr.isatty()

    def edit_stderr_text(text: str) -> str:
        shown = to_local_times(text) if is_local else text
        return wrap_lines(shown, get_terminal_size().columns) if is_folded else shown

    return edit_stderr_text


def _display_settings(arguments: argparse.Namespace) -> Display:
    form = getattr(arguments, "output", None) or getattr(arguments, "format", None) or "table"
    is_local = getattr(arguments, "local_time", False) and form in ("table", "tree")
    return Display(getattr(arguments, "full", False), is_local, arguments.quiet, hasattr(arguments, "full"))


def _make_paths_absolute(arguments: argparse.Namespace) -> None:
    """Make relative folders absolute if a cluster runs the job, because its processes have other working folders."""
    if not os.environ.keys() & {"PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE"}:
        return
    from commitlake.connectors.spark.submit_arguments import uses_cluster

    if not uses_cluster():
        return
    for name in ("store", "lake", "bodies", "out", "dir"):
        place = getattr(arguments, name, None)
        if isinstance(place, Path):
            setattr(arguments, name, place.absolute())
        elif place:
            parts = place.split(",") if name == "store" else [place]
            is_named = name == "lake" and _may_be_catalog_name(place)
            absolute = [part if is_named else absolute_path_or_uri(part) for part in parts]
            setattr(arguments, name, ",".join(absolute))


def _may_be_catalog_name(lake_argument: str) -> bool:
    try:
        return is_catalog_location(lake_argument)
    except CommitLakeError:  # it may be a folder, too: `resolve_catalog_lake` says so
        return True


def _run_with_metrics(
    parser: argparse.ArgumentParser, job: Callable[[argparse.Namespace], ExitCode], arguments: argparse.Namespace
) -> int:
    """Run the job, and write its metrics if a file is given for them."""
    if not arguments.metrics_file:
        return _run_and_report_errors(parser, job, arguments)
    from commitlake.jobs.cli.missing_packages import MissingPackageError, require_package
    from commitlake.jobs.cli.output_files import OutputFileError
    from commitlake.jobs.cli.run_metrics import RunMetrics

    try:
        require_package("prometheus_client", "--metrics-file")
    except MissingPackageError as error:
        _print_error(parser.prog, str(error), error.hint)
        return error.exit_code
    try:
        metrics = RunMetrics(Path(arguments.metrics_file), _job_name(parser))
    except OutputFileError as error:
        _print_error(parser.prog, str(error), "")
        return ExitCode.USAGE
    code: int = ExitCode.INTERRUPTED
    try:
        code = _run_and_report_errors(parser, job, arguments)
    finally:
        try:
            metrics.write(code)
        except OSError as error:
            _print_error(parser.prog, f"--metrics-file {arguments.metrics_file}: {error.strerror or error}", "")
            code = code or ExitCode.FAILED
    return code


def _job_name(parser: argparse.ArgumentParser) -> str:
    return parser.prog.split()[-1]


def _run_and_report_errors(
    parser: argparse.ArgumentParser, job: Callable[[argparse.Namespace], ExitCode], arguments: argparse.Namespace
) -> int:
    level = logging.INFO if arguments.verbose else logging.WARNING
    if arguments.log_format == "json":
        from commitlake.jobs.cli.json_log import JsonLogHandler

        logging.basicConfig(level=level, handlers=[JsonLogHandler()])
    else:
        logging.basicConfig(level=level, format="%(levelname)s %(message)s")
    try:
        with (
            restricted_umask(),
            use_settings_file(getattr(arguments, "broker_conf", None)),
            watch_unread_warnings() as has_unread,
        ):
            resolve_catalog_lake(vars(arguments))
            _check_stores_at_uris(arguments)
            exit_code = job(arguments)
            if exit_code == ExitCode.OK and has_unread():
                exit_code = ExitCode.DAMAGE
        sys.stdout.flush()
    except OutputError:
        raise
    except KeyboardInterrupt:
        if runs_in_own_process():
            raise
        _print_error(parser.prog, "interrupted", "")
        return ExitCode.INTERRUPTED
    except BaseException as error:
        if not is_error_or_panic(error):
            raise
        return _report_exception(parser.prog, error, verbose=arguments.verbose)
    return exit_code


def resolve_catalog_lake(values: dict[str, Any]) -> None:
    """Replace the catalog name of a lake by the lake's root, so that workers and other processes also get the root.

    A job that reports on places does so itself.

    Args:
        values: values of a job's options by name; `lake` is replaced.

    Raises:
        CatalogError: if there is no such lake, or its catalog cannot be asked.
    """
    place = values.get("lake")
    if values.get("reports_places"):
        return
    if isinstance(place, str) and is_catalog_location(place):
        from commitlake.connectors.catalog.lake_root_lookup import find_lake_root

        values["lake"] = find_lake_root(place)


def _check_stores_at_uris(arguments: argparse.Namespace) -> None:
    """Check access to stores at URIs before the job begins; jobs such as `doctor` check it themselves."""
    if getattr(arguments, "reports_places", False):
        return
    from commitlake.jobs.arguments.s3 import check_stores_at_uris

    endpoint, region = (getattr(arguments, name, None) for name in ("s3_endpoint", "s3_region"))
    check_stores_at_uris(str(getattr(arguments, "store", None) or ""), endpoint, region)


def _check_setting_names(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Raise an error for unknown names in a settings file, and warn of environment variables that no job reads."""
    from commitlake.jobs.cli.settings_check import (
        SettingsError,
        check_environment,
        check_settings_file,
        find_settings_file,
    )

    try:
        if (path := find_settings_file(parser, argv)) is not None:
            check_settings_file(path, _job_name(parser), parser)
    except SettingsError as error:
        parser.error(str(error))
    check_environment(parser, os.environ)


def _check_argument_texts(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Raise an error for arguments that are not valid text."""
    from commitlake.jobs.cli.settings_check import SettingsError, check_argument_texts

    try:
        check_argument_texts(parser, arguments)
    except SettingsError as error:
        parser.error(str(error))


_IMPOSSIBLE_PATHS = frozenset({errno.ENAMETOOLONG, errno.ELOOP})


class ErrorMessageAndHint(NamedTuple):
    """The message, hint and exit code of an error that ends a job.

    Attributes:
        message: description of the error.
        hint: a hint on what to do, or empty.
        exit_code: the job's exit code; None for an unexpected error.
    """

    message: str
    hint: str = ""
    exit_code: int | None = None


def explain_error(error: BaseException) -> ErrorMessageAndHint:
    """Return the message for an error that ends a job; for a failed worker, the message of the worker's error."""
    error = extract_worker_error(error) or error
    if isinstance(error, CommitLakeError) and error.exit_code is not None:
        return ErrorMessageAndHint(str(error), error.hint, error.exit_code)
    from commitlake.connectors.storage.arrow_errors import s3_error_of
    from commitlake.jobs.cli.permissions import HINT, path_of_permission_error

    if (of_s3 := s3_error_of(error)) is not None:
        return ErrorMessageAndHint(str(of_s3), exit_code=of_s3.exit_code)
    if (place := path_of_permission_error(error)) is not None:
        message = f"{place}: permission denied for this user"
        return ErrorMessageAndHint(message, HINT, ExitCode.USAGE)
    if isinstance(error, OSError) and error.errno in _IMPOSSIBLE_PATHS:
        return ErrorMessageAndHint(f"{error.filename}: {error.strerror}", "Name another place", ExitCode.USAGE)
    if (
        number := received_stop_signal()
    ) is not None:  # a signal to the process group has ended processes that the job needs
        return ErrorMessageAndHint(f"ended by {signal.Signals(number).name}", exit_code=128 + number)
    return ErrorMessageAndHint(f"{type(error).__name__}: {_first_line(error)}")


def is_error_or_panic(raised: BaseException) -> bool:
    """Return True for errors, including deltalake's panics, and False for requests to exit."""
    return isinstance(raised, Exception) or type(raised).__name__ == "PanicException"


def _report_exception(prog: str, error: BaseException, *, verbose: bool) -> int:
    if (raised := extract_worker_error(error)) is not None:
        raised.__cause__ = error
        error = raised
    if isinstance(error, ModuleNotFoundError):
        from commitlake.jobs.cli.missing_packages import find_missing_package

        error = find_missing_package(error) or error
    shown = explain_error(error)
    if shown.exit_code is not None:
        _print_error(prog, shown.message, shown.hint)
        return shown.exit_code
    if verbose:
        traceback.print_exception(error)
    _print_error(prog, shown.message, "" if verbose else "--verbose shows the stack trace")
    return ExitCode.FAILED


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's message; for a Java error, that of its innermost cause."""
    lines = str(error).strip().splitlines() or ["no message"]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else lines[0]


def _print_error(prog: str, message: str, hint: str) -> None:
    # Lines after the first are indented, so that they do not look like separate messages.
    print(re.sub(r"\n(?! )", "\n  ", f"{prog}: error: {message}"), file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
