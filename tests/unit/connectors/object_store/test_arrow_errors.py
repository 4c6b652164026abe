"""Tests of the translation of errors of Arrow's S3 filesystem."""

from __future__ import annotations

import pytest

from commitlake.connectors.object_store import access
from commitlake.connectors.object_store.arrow_errors import s3_error_of
from commitlake.connectors.object_store.errors import S3Error, S3UnavailableError
from commitlake.jobs.cli.command import explain_error
from commitlake.schemas.errors import ExitCode

NETWORK = "When getting information for key 'stores/a' in bucket 'lake': AWS Error NETWORK_CONNECTION during HeadObject"
UNKNOWN = "When listing objects under key 'stores/a' in bucket 'lake': AWS Error UNKNOWN (HTTP status 404) during List"
BUSY = "When reading information for key 'stores/a' in bucket 'lake': AWS Error SLOW_DOWN during GetObject operation"


@pytest.mark.parametrize("text", [NETWORK, UNKNOWN, BUSY])
def test_the_server_is_asked_once_more_for_the_cause(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object, uri: str, __: str) -> list[str]:
        raise S3Error(f"{uri}: found no server", "Start it")

    monkeypatch.setattr(access, "first_names", refused)
    assert explain_error(OSError(text)) == ("s3://lake/stores/a: found no server. Start it", "", ExitCode.USAGE)
    caused = RuntimeError("of a task")
    caused.__cause__ = OSError(text)
    assert isinstance(s3_error_of(caused), S3Error)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (NETWORK, S3UnavailableError),
        (BUSY, S3UnavailableError),
        (BUSY.replace("SLOW_DOWN", "ACCESS_DENIED"), S3Error),
    ],
)
def test_if_the_server_answers_now_its_earlier_answer_is_named(
    text: str, kind: type[S3Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "first_names", lambda *_: [])
    found = s3_error_of(OSError(text))
    assert type(found) is kind
    assert "s3://lake/stores/a cannot be read: found the answer" in str(found)


def test_other_errors_are_not_translated() -> None:
    assert s3_error_of(OSError("No space left on device")) is None
    assert s3_error_of(ValueError(NETWORK)) is None
