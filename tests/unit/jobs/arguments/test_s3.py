"""Tests of the options of an object store: they set the environment that all clients read."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import pytest

from commitlake.connectors import unencrypted_connections
from commitlake.connectors.storage.s3_storage import S3Storage
from commitlake.jobs.arguments.s3 import S3Arguments, check_stores_at_uris, set_s3_environment
from commitlake.jobs.cli.options import add_options


def test_options_replace_the_environment_only_if_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://old.example.org")
    monkeypatch.setenv("AWS_REGION", "old")
    parser = argparse.ArgumentParser()
    add_options(parser, S3Arguments)
    set_s3_environment(parser.parse_args(["--s3-region", "new"]))
    assert (os.environ["AWS_ENDPOINT_URL_S3"], os.environ["AWS_REGION"]) == ("https://old.example.org", "new")


def test_an_unencrypted_connection_to_a_store_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "")  # restores what the check sets
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.example:9000")
    monkeypatch.setattr(unencrypted_connections, "_warned", set())
    monkeypatch.setattr(S3Storage, "check_access", lambda _: None)
    with caplog.at_level(logging.WARNING):
        check_stores_at_uris("/data/store, s3://bucket/store")
        check_stores_at_uris("/data/store")
    (message,) = caplog.messages
    assert "http://store.example:9000" in message


def test_an_endpoint_of_the_profile_is_set_for_arrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:9\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "")
    monkeypatch.setattr(S3Storage, "check_access", lambda _: None)
    check_stores_at_uris("s3://stores/a")
    assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:9"
