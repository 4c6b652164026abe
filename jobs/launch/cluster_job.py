"""A job whose driver runs in the cluster: `./spark-submit.sh --master yarn --deploy-mode cluster JOB …`.

This process checks the arguments, submits the job to YARN, prints what the job prints, and ends with its exit code. The
job's environment variables `COMMITLAKE_…`, `AWS_…`, `AZURE_…`, `GOOGLE_…` and `STORAGE_EMULATOR_HOST` and the user's
settings file are sent with it, in a file that only its owner can read. They appear neither on a command line nor in
Spark's settings, which its web pages show.

A second attempt by YARN could succeed and so hide what the first one has found. So there is only one attempt; the
caller decides on another by the exit code.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import json
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlake.connectors.spark.submit_arguments import option_pairs
from commitlake.connectors.storage.uris import is_s3
from commitlake.jobs.cli.command import JobError, explain_error, resolve_catalog_lake
from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.cli.process import call_on_first_signal, received_stop_signal, set_command_name
from commitlake.jobs.cli.settings_check import find_settings_file
from commitlake.jobs.launch.shared_path_check import SETTING, check_shared_places
from commitlake.jobs.launch.yarn_driver import FILE
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.spark.yarn_application import YarnApplication
    from commitlake.connectors.storage.s3_options import S3Options

_ATTEMPTS = "spark.yarn.maxAppAttempts"
_STAGING = "spark.yarn.stagingDir"
_PREFIXES = ("COMMITLAKE_", "AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST")
_ONLY_HERE = frozenset({"COMMITLAKE_PYTHON", "COMMITLAKE_JARS", "COMMITLAKE_CONFIG"})
_SUBMITTER = ("--master", "local", "--driver-memory", "512m")
_CLUSTER_SETTINGS = {
    # A job may read its stores for a long time before it needs Spark.
    "spark.yarn.am.waitTime": "24h",
}


def run_on_yarn(options: Sequence[str], command: Sequence[str]) -> int:
    """Run a job with its driver on YARN, and return its exit code.

    Args:
        options: options of spark-submit.
        command: the job and its arguments.
    """
    name = f"commitlake {command[0]}"
    set_command_name(name)
    try:
        return _check_and_submit(options, command)
    except JobError as error:
        return _print_error(name, str(error), error.hint, error.exit_code)
    except Exception as error:  # noqa: BLE001 (as for every job)
        shown = explain_error(error)
        return _print_error(name, shown.message, shown.hint, shown.exit_code or ExitCode.FAILED)


def _check_and_submit(options: Sequence[str], command: Sequence[str]) -> int:
    job, *arguments = command
    if job not in JOBS:
        raise JobError(f"there is no job {job!a}", "./spark-submit.sh --help lists the jobs")
    from commitlake.connectors.spark.spark_defaults import configuration_folder, read_defaults
    from commitlake.connectors.spark.submit_arguments import parse_settings

    chosen = {**read_defaults(configuration_folder()), **parse_settings(options)}
    check_single_attempt(parse_settings(options))
    parser = importlib.import_module(f"commitlake.jobs.{job}.command").build_parser()
    values = vars(parser.parse_args(arguments))
    command = resolve_lake_name(command, values)
    check_shared_places(parser, values, [folder for folder in chosen.get(SETTING, "").split(",") if folder])
    with tempfile.TemporaryDirectory(prefix="commitlake-job-") as temporary:
        return _submit_and_wait(command, parser, values, chosen, Path(temporary))


def resolve_lake_name(command: Sequence[str], option_values: dict[str, Any]) -> list[str]:
    """Return a job's arguments with the catalog name of a lake replaced by the lake's location.

    Only this machine asks the catalog, so the token stays here; and the driver cannot take the name for a folder in its
    working folder.

    Args:
        command: the job and its arguments.
        option_values: values of the job's options by name; the name in them is replaced, too.
    """
    given = option_values.get("lake")
    resolve_catalog_lake(option_values)
    found = option_values.get("lake")
    return [*command] if found == given else [*command, "--lake", str(found)]  # the last one counts


def check_single_attempt(spark_settings: Mapping[str, str]) -> None:
    """Raise an error if a setting of spark-submit allows more than one attempt.

    Raises:
        JobError: if the user has set more.
    """
    attempts = spark_settings.get(_ATTEMPTS, "1")
    if attempts != "1":
        raise JobError(
            f"--conf {_ATTEMPTS}={attempts} is refused: expected 1, because a second attempt could hide what the "
            "first one found",
            "let the scheduler run the job again after exit code 1",
        )


def _submit_and_wait(
    command: Sequence[str],
    parser: argparse.ArgumentParser,
    option_values: Mapping[str, Any],
    spark_settings: Mapping[str, str],
    temporary_folder: Path,
) -> int:
    from commitlake.connectors.spark.hadoop_folder import HadoopFolder, staging_folder_uri
    from commitlake.connectors.spark.jvm import prepare_launch, start_jvm, stop_jvm
    from commitlake.connectors.spark.session import QUIET_JVM, submission_settings
    from commitlake.connectors.spark.yarn_application import YarnApplication, clear_spark_settings

    prepared = prepare_launch(
        {**submission_settings(_lake_s3_options(option_values)), **_CLUSTER_SETTINGS}, includes_driver=True
    )
    # Instead of spark-defaults.conf, whose settings are for the job, and not for the process that submits it.
    no_defaults = temporary_folder / "no-defaults.conf"
    no_defaults.touch()
    submitter = [*_SUBMITTER, "--properties-file", str(no_defaults), "--driver-java-options", QUIET_JVM]
    gateway = start_jvm([*submitter, "pyspark-shell"], prepared.folder)
    try:
        clear_spark_settings(gateway)
        staging = spark_settings.get(_STAGING) or None
        output = HadoopFolder(
            gateway.jvm, staging_folder_uri(gateway.jvm, f".commitlake/{secrets.token_hex(8)}", staging)
        )
        job = temporary_folder / FILE
        # Created with its mode before anything is written, so that nobody else can read the secrets in between.
        job.touch(mode=0o600)
        job.write_text(json.dumps(job_file_content(parser, command, output.place, os.environ)))
        application = YarnApplication(gateway, output, staging)
        application.submit(
            add_job_file_options(prepared.words[:-1], job), str(Path(__file__).with_name("yarn_driver.py"))
        )
        try:
            return _wait_for_application(application, command[0], quiet=option_values["quiet"])
        finally:
            # Also after an error: it has the job's output.
            output.delete_all()
    finally:
        stop_jvm(gateway)


def _wait_for_application(application: YarnApplication, job_name: str, *, quiet: bool) -> int:
    """Wait until the job ends, and return its exit code; kill the application if this process is asked to stop."""
    asked = threading.Event()
    shown = []

    def print_application_id(identifier: str) -> None:
        shown.append(identifier)
        if not quiet:
            print(f"commitlake {job_name}: {identifier} runs the job on YARN; Ctrl-C kills it", file=sys.stderr)

    try:
        with call_on_first_signal(asked.set):
            code = application.follow(TerminalOutput().write, print_application_id, asked.is_set)
    except BaseException:
        application.kill()
        raise
    if code is None:
        print(f"commitlake {job_name}: killed {shown[0] if shown else 'before YARN accepted it'}", file=sys.stderr)
        return 128 + (received_stop_signal() or 0)
    return code


class TerminalOutput:
    """Output stream pair to which a driver's output is copied: standard output and standard error of this process."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {stream: make("backslashreplace") for stream in (1, 2)}

    def write(self, stream: int, content: bytes) -> None:
        """Write bytes to one of the streams; on a terminal, control characters are escaped."""
        from commitlake.connectors.printable import escape_unprintable

        target = sys.stdout if stream == 1 else sys.stderr
        if target.isatty():
            target.write(escape_unprintable(self._decoders[stream].decode(content)))
        else:
            target.buffer.write(content)
        target.flush()


def job_file_content(
    parser: argparse.ArgumentParser, command: Sequence[str], output_folder: str, environment: Mapping[str, str]
) -> dict[str, object]:
    """Return the content of the file that tells the driver which job to run.

    Args:
        command: the job and its arguments.
        output_folder: URI of the folder for the output.
        environment: variables of this process.
    """
    is_sent = {name: value for name, value in environment.items() if name.startswith(_PREFIXES)}
    file = find_settings_file(parser, command[1:])
    return {
        "arguments": list(command),
        "environment": {name: value for name, value in is_sent.items() if name not in _ONLY_HERE},
        "settings": file.read_text(encoding="utf-8") if file is not None and file.is_file() else None,
        "output": output_folder,
    }


def add_job_file_options(options: Sequence[str], file: Path) -> list[str]:
    """Return spark-submit options that also send a file to the driver, and allow a single attempt.

    >>> add_job_file_options(["--files", "a,b"], Path("/job.json"))
    ['--files', 'a,b,/job.json', '--conf', 'spark.yarn.maxAppAttempts=1']
    """
    pairs = [list(pair) for pair in option_pairs(options)]
    if sent := [pair for pair in pairs if pair[0] == "--files"]:
        sent[-1][1] += f",{file}"
    else:
        pairs.append(["--files", str(file)])
    return [*chain.from_iterable(pairs), "--conf", f"{_ATTEMPTS}=1"]


def _lake_s3_options(option_values: Mapping[str, Any]) -> S3Options | None:
    """Return the options for S3 if the lake is there, because Spark then needs additional jars; otherwise None."""
    if not is_s3(option_values.get("lake") or ""):
        return None
    from commitlake.connectors.storage.s3_clients import s3_options

    return s3_options(option_values.get("s3_endpoint"), option_values.get("s3_region"))


def _print_error(name: str, message: str, hint: str, exit_code: int) -> int:
    print(f"{name}: error: {message}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    return int(exit_code)
