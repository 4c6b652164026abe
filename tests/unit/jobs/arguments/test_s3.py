"""Tests of the options of an object store: they set the environment that all clients read."""

from __future__ import annotations

import argparse
import os

import pytest

from commitlake.jobs.arguments.s3 import S3Arguments, set_s3_environment
from commitlake.jobs.cli.options import add_options


def test_options_replace_the_environment_only_if_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://old.example.org")
    monkeypatch.setenv("AWS_REGION", "old")
    parser = argparse.ArgumentParser()
    add_options(parser, S3Arguments)
    set_s3_environment(parser.parse_args(["--s3-region", "new"]))
    assert (os.environ["AWS_ENDPOINT_URL_S3"], os.environ["AWS_REGION"]) == ("https://old.example.org", "new")
