"""The argument STORE, which can also be given as `--store`."""

from __future__ import annotations

import argparse

import pytest

from commitlake.jobs.cli.command import JobError, job_parser
from commitlake.jobs.cli.store_arguments import add_store_argument, check_store_is_given, file_size


@pytest.mark.parametrize("given", [["/store"], ["--store", "/store"], ["--store=/store"]])
def test_a_store_is_an_argument_or_an_option(given: list[str]) -> None:
    parser = job_parser("verify", "Check a store.", [("verify /store", "all")])
    add_store_argument(parser, "the store")
    arguments = parser.parse_args(given)
    assert arguments.store == "/store"
    check_store_is_given(arguments)


def test_a_missing_store_is_an_error() -> None:
    parser = job_parser("verify", "Check a store.", [("verify /store", "all")])
    add_store_argument(parser, "the store")
    with pytest.raises(JobError, match="expected a store, found none"):
        check_store_is_given(parser.parse_args([]))


@pytest.mark.parametrize(
    ("text", "size"),
    [("6000000", 6_000_000), ("1GiB", 1 << 30), ("128 MiB", 128 << 20), ("1.5KiB", 1536), ("1e3", 1000)],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert file_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "MiB", "1.5", "1.0001KiB", "1MB", "nan", "inf", "9" * 30, "1e400GiB"])
def test_another_text_is_not_a_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number of bytes, or a size as in 16MiB"):
        file_size(text)
