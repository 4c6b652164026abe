"""The argument STORE, which can also be given as `--store`."""

from __future__ import annotations

import pytest

from commitlake.jobs.cli.command import JobError, job_parser
from commitlake.jobs.cli.store_arguments import add_store_argument, check_store_is_given


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
