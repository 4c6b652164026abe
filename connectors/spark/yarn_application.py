"""An application on YARN whose driver runs in the cluster: how it is submitted, followed and killed from here.

One JVM here does it all: it submits with Spark's own launcher, asks the resource manager for the state, and reads the
driver's output from the folder of `driver_output`. Spark's spark-submit would only tell success from failure.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from commitlake.connectors.spark.driver_output import copy_output
from commitlake.connectors.spark.hadoop_folder import HadoopFolder, staging_folder_uri
from commitlake.connectors.spark.submit_arguments import option_pairs
from commitlake.schemas.errors import ExitCode, UnavailableError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_POLL_SECONDS = 1.0
_KILL_SECONDS = 10.0
_SUCCEEDED = "SUCCEEDED"
_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
_LAST_READS = 10
logger = logging.getLogger(__name__)


class YarnApplication:
    """An application on YARN, from its submission to its end."""

    def __init__(self, gateway: JavaGateway, folder: HadoopFolder, staging: str | None) -> None:
        """Set what is needed to submit an application; nothing is submitted yet.

        Args:
            gateway: the JVM that submits it.
            folder: folder of the driver's output.
            staging: the setting `spark.yarn.stagingDir`, if any.
        """
        self._gateway = gateway
        self._folder = folder
        self._staging = staging
        self._yarn: Any = None
        self._handle: Any = None
        self._warnings: set[str] = set()

    def submit(self, options: Sequence[str], program: str) -> None:
        """Submit the application, without waiting until it runs.

        Args:
            options: options of spark-submit.
            program: path of the driver's Python program.
        """
        api = self._gateway.jvm.org.apache.spark.launcher
        launcher = api.InProcessLauncher().setDeployMode("cluster").setAppResource(program)
        for words in option_pairs(options):
            launcher.addSparkArg(*words)
        listeners = self._gateway.new_array(api.SparkAppHandle.Listener, 0)
        self._handle = launcher.startApplication(listeners)

    def follow(
        self,
        write_output: Callable[[int, bytes], None],
        on_application_id: Callable[[str], None],
        is_stop_requested: Callable[[], bool],
    ) -> int | None:
        """Pass on the driver's output until the application has ended.

        Args:
            write_output: gets the number of a stream and bytes for it.
            on_application_id: gets the application's id when it is known.
            is_stop_requested: whether the user wants it to stop; the application is killed then.

        Returns:
            The job's exit code; None if the application was killed because the user wanted it.

        Raises:
            UnavailableError: if YARN does not accept the application, or if it ended without an exit code.
        """
        is_announced = False
        while True:
            is_over = self._has_ended()
            if not is_announced and (identifier := self._handle.getAppId()):
                is_announced = True
                on_application_id(str(identifier))
            code = self._copy_output(write_output, _LAST_READS if is_over else 1)
            if is_over:
                return self._exit_code(code)
            if is_stop_requested():
                self.kill()
                self._copy_output(write_output)
                return None
            time.sleep(_POLL_SECONDS)

    def _has_ended(self) -> bool:
        """Return whether the application has ended; YARN is asked, too, because Spark may have lost contact with it."""
        if not self._handle.getState().isFinal():
            return False
        try:
            application = self._application_id()
            if application is None:
                return True
            report = self._yarn_client().getApplicationReport(application)
            return str(report.getYarnApplicationState().toString()) in _ENDED
        except Py4JError as error:
            self._warn_once(f"YARN cannot be asked for the state of the job, and is asked again: {error}")
            return False

    def _copy_output(self, write_output: Callable[[int, bytes], None], attempts: int = 1) -> int | None:
        """Pass on the driver's new output; return the job's exit code once it is known."""
        for attempt in range(attempts):
            if attempt:
                time.sleep(_POLL_SECONDS)
            try:
                return copy_output(self._folder, write_output)
            except Py4JError as error:
                self._warn_once(f"the output of the job cannot be read, and is read again: {error}")
        return None

    def _warn_once(self, text: str) -> None:
        """Log a warning, unless the same warning was logged before."""
        line = text.splitlines()[0]
        if line not in self._warnings:
            self._warnings.add(line)
            logger.warning("%s", line)

    def kill(self) -> None:
        """Kill the application if it was submitted, and delete its files."""
        with suppress(Py4JError):
            if (application := self._application_id()) is not None:
                self._yarn_client().killApplication(application)
                deadline = time.monotonic() + _KILL_SECONDS
                while not self._handle.getState().isFinal() and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS / 10)
                self._delete_files(application)

    def _exit_code(self, code: int | None) -> int:
        application = self._application_id()
        if application is None:
            raise UnavailableError(f"YARN did not accept the application: {self._submission_error()}")
        report = self._yarn_client().getApplicationReport(application)
        self._delete_files(application)
        status = str(report.getFinalApplicationStatus().toString())
        if code is None or (code == ExitCode.OK and status != _SUCCEEDED):
            reason = str(report.getDiagnostics() or "").strip() or "YARN gives no reason"
            raise UnavailableError(f"{application.toString()} ended as {status}, without an exit code: {reason}")
        return code

    def _delete_files(self, application: Any) -> None:
        """Delete the application's files, because Spark may leave them, and one contains the job's environment."""
        place = staging_folder_uri(self._gateway.jvm, f".sparkStaging/{application.toString()}", self._staging)
        HadoopFolder(self._gateway.jvm, place).delete_all()

    def _submission_error(self) -> str:
        error = self._handle.getError()
        if not error.isPresent():
            return "Spark gives no reason"
        cause = error.get()
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.toString())

    def _application_id(self) -> Any:
        found = self._handle.getAppId()
        return self._gateway.jvm.org.apache.hadoop.yarn.api.records.ApplicationId.fromString(found) if found else None

    def _yarn_client(self) -> Any:
        if self._yarn is None:
            hadoop = self._gateway.jvm.org.apache.hadoop.yarn
            self._yarn = hadoop.client.api.YarnClient.createYarnClient()
            self._yarn.init(hadoop.conf.YarnConfiguration())
            self._yarn.start()
        return self._yarn


def clear_spark_settings(gateway: JavaGateway) -> None:
    """Remove the Spark settings of the submitting JVM, because Spark would otherwise use them for the application."""
    system = gateway.jvm.System
    for name in list(system.getProperties().stringPropertyNames()):
        if name.startswith("spark."):
            system.clearProperty(name)
