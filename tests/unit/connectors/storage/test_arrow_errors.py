"""Tests of the translation of S3 errors of Arrow and deltalake."""

from __future__ import annotations

import pytest

from commitlake.connectors.storage.arrow_errors import s3_error_of
from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.connectors.storage.s3_storage import S3Storage
from commitlake.jobs.cli.command import explain_error
from commitlake.schemas.errors import ExitCode

NETWORK = "When getting information for key 'stores/a' in bucket 'lake': AWS Error NETWORK_CONNECTION during HeadObject"
UNKNOWN = "When listing objects under key 'stores/a' in bucket 'lake': AWS Error UNKNOWN (HTTP status 404) during List"
BUSY = "When reading information for key 'stores/a' in bucket 'lake': AWS Error SLOW_DOWN during GetObject operation"


@pytest.mark.parametrize("text", [NETWORK, UNKNOWN, BUSY])
def test_the_server_is_asked_once_more_for_the_cause(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(storage: S3Storage) -> None:
        raise S3Error(f"{storage.text}: found no server", "Start it")

    monkeypatch.setattr(S3Storage, "check_access", refused)
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
    monkeypatch.setattr(S3Storage, "check_access", lambda _: None)
    found = s3_error_of(OSError(text))
    assert type(found) is kind
    assert "s3://lake/stores/a cannot be read: found the answer" in str(found)


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:9", "http://127.0.0.1:9/bucket?list-type=2&prefix=lake%2Fmessages%2F_delta_log%2F"),
        (None, "https://bucket.s3.eu-central-1.amazonaws.com/?list-type=2&prefix=lake%2F"),
    ],
)
def test_an_error_of_deltalake_names_the_bucket_and_what_to_do(
    kind: type[Exception], endpoint: str | None, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""Generic S3 error
          \x1b[31m↳\x1b[0m Error performing list request
           \x1b[31m↳\x1b[0m Error performing GET {url} in 6.6s, after 10 retries, max_retries
            \x1b[31m↳\x1b[0m 10, retry_timeout"""
    asked = []

    def refused(storage: S3Storage) -> None:
        asked.append(storage.text)
        raise S3UnavailableError(
            f"{storage.text}: found no server at the endpoint", "Is the endpoint right (--s3-endpoint)?"
        )

    monkeypatch.setattr(S3Storage, "check_access", refused)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint or "")
    shown = explain_error(kind(text))
    assert asked == ["s3://bucket"]
    assert shown.exit_code == ExitCode.FAILED
    assert "found no server at the endpoint. Is the endpoint right (--s3-endpoint)?" in shown.message


def test_other_errors_are_not_translated() -> None:
    assert s3_error_of(OSError("No space left on device")) is None
    assert s3_error_of(ValueError(NETWORK)) is None
