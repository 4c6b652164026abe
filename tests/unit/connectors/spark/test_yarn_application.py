"""Ends of an application, as far as they can be tested without YARN; tests/integration/spark/test_yarn.py has one."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JError

from commitlake.connectors.spark import yarn_application
from commitlake.connectors.spark.yarn_application import YarnApplication
from commitlake.schemas.errors import UnavailableError


class Output:
    """A folder with these files, which are empty."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def file_names(self) -> list[str]:
        """List the files."""
        return self._names

    def read(self, _name: str) -> bytes:
        """Read a file."""
        return b""

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._names.remove(name)


def application(*files: str, identifier: str | None = "application_1_1", is_over: bool = True) -> tuple[Any, Any]:
    """Return an application that Spark has submitted, and YARN's client."""
    found = YarnApplication(MagicMock(), Output(*files), None)  # type: ignore[arg-type]  # enough of a HadoopFolder
    handle, client = Mock(), Mock()
    handle.getAppId.return_value = identifier
    handle.getState.return_value.isFinal.return_value = is_over
    client.killApplication.side_effect = lambda _: setattr(
        handle.getState.return_value, "isFinal", lambda: True
    )  # it ends
    found._handle, found._yarn = handle, client
    return found, client


def ended(client: Any, status: str, diagnostics: str | None) -> None:
    """Let YARN report an end."""
    report = client.getApplicationReport.return_value
    report.getYarnApplicationState.return_value.toString.return_value = "FINISHED"
    report.getFinalApplicationStatus.return_value.toString.return_value = status
    report.getDiagnostics.return_value = diagnostics


@pytest.mark.parametrize(("end", "status", "code"), [("end-0", "SUCCEEDED", 0), ("end-3", "FAILED", 3)])
def test_the_exit_code_is_that_of_the_job(end: str, status: str, code: int) -> None:
    submitted, client = application("000000001-1", end)
    ended(client, status, "User application exited")
    announced: list[str] = []
    written: list[int] = []
    assert submitted.follow(lambda stream, _: written.append(stream), announced.append, lambda: False) == code
    assert announced == ["application_1_1"]
    assert written == [1]


@pytest.mark.parametrize(
    ("files", "status", "diagnostics", "found"),
    [
        ([], "FAILED", "exitCode: 137", "ended as FAILED, without an exit code: exitCode: 137"),
        ([], "KILLED", None, "ended as KILLED, without an exit code: YARN gives no reason"),
        (["end-0"], "FAILED", "lost", "ended as FAILED"),
    ],
)
def test_an_end_without_success_is_never_a_success(
    files: list[str], status: str, diagnostics: str | None, found: str
) -> None:
    submitted, client = application(*files)
    ended(client, status, diagnostics)
    with pytest.raises(UnavailableError, match=found):
        submitted.follow(Mock(), Mock(), lambda: False)


def test_a_job_is_followed_while_yarn_or_its_output_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(yarn_application, "_POLL_SECONDS", 0)
    submitted, client = application("000000001-1", "end-3")
    ended(client, "FAILED", None)
    state = client.getApplicationReport.return_value.getYarnApplicationState.return_value
    state.toString.side_effect = [Py4JError("no YARN"), "RUNNING", "FINISHED"]
    names = submitted._folder.file_names
    monkeypatch.setattr(submitted._folder, "file_names", Mock(side_effect=[Py4JError("no folder")] * 3 + [names()]))
    assert submitted.follow(Mock(), Mock(), lambda: False) == 3
    client.killApplication.assert_not_called()
    assert caplog.text.count("no YARN") == caplog.text.count("no folder") == 1


def test_an_application_that_is_not_accepted_has_sparks_reason() -> None:
    submitted, _ = application(identifier=None)
    error = submitted._handle.getError.return_value.get.return_value
    error.getCause.return_value.getCause.return_value = None
    error.getCause.return_value.toString.return_value = "java.io.IOException: no queue"
    with pytest.raises(UnavailableError, match=r"YARN did not accept the application: java\.io\.IOException: no"):
        submitted.follow(Mock(), Mock(), lambda: False)


def test_a_user_who_wants_to_stop_kills_it() -> None:
    submitted, client = application(is_over=False)
    assert submitted.follow(Mock(), Mock(), lambda: True) is None
    client.killApplication.assert_called_once()


def test_what_was_not_submitted_is_not_killed() -> None:
    submitted, client = application(identifier=None, is_over=False)
    assert submitted.follow(Mock(), Mock(), lambda: True) is None
    client.killApplication.assert_not_called()
