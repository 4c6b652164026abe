"""Tests of signatures: those of RocketMQ's own signer, and those that a server accepts."""

from __future__ import annotations

import pytest

from commitlake.schemas.remoting.errors import NotPermittedError
from commitlake.schemas.remoting.signing import Credentials, check_signature, compute_signature, sign_fields

SECRET = "12345678"
SECRETS = {"RocketMQ": SECRET}


@pytest.mark.parametrize(
    ("fields", "body", "expected"),
    [
        # Made by AclSigner of RocketMQ 4.9.
        ({"AccessKey": "RocketMQ", "topic": "TopicTest"}, b"", "0jiwhsaYp5ObE5GObbZH1I8/FT4="),
        (
            {"e": "3", "b": "TopicTest", "a": "PG", "AccessKey": "RocketMQ"},  # the order does not matter
            b"Hello",
            "ZpMH3Aw7ILMTBueCpN+K6D6eHNs=",
        ),
    ],
)
def test_signature_is_the_same_as_rocketmqs(fields: dict[str, str], body: bytes, expected: str) -> None:
    assert compute_signature(fields, body, SECRET) == expected
    assert compute_signature(fields | {"Signature": "another"}, body, SECRET) == expected


def test_a_signed_request_is_accepted() -> None:
    fields = sign_fields({"topic": "T"}, b"body", Credentials("RocketMQ", SECRET, "token"))
    assert fields["SecurityToken"] == "token"
    assert check_signature(fields, b"body", SECRETS) == "RocketMQ"


@pytest.mark.parametrize("is_signed", [True, False])
def test_the_flag_of_a_unique_key_query_may_be_signed_or_not(is_signed: bool) -> None:
    flag = {"_UNIQUE_KEY_QUERY": "true"}
    base = {"topic": "T"} | (flag if is_signed else {})
    fields = sign_fields(base, b"", Credentials("RocketMQ", SECRET)) | flag
    assert check_signature(fields, b"", SECRETS) == "RocketMQ"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topic": "U"}, "was not made with the secret key of 'RocketMQ'"),
        ({"more": "x"}, "was not made with the secret key of 'RocketMQ'"),
        ({"Signature": "é"}, "was not made with the secret key of 'RocketMQ'"),
        ({"AccessKey": "Nobody"}, "found 'Nobody'"),
    ],
)
def test_a_changed_request_is_refused(changes: dict[str, str], message: str) -> None:
    fields = sign_fields({"topic": "T"}, b"body", Credentials("RocketMQ", SECRET))
    with pytest.raises(NotPermittedError, match=message):
        check_signature(fields | changes, b"body", SECRETS)


def test_another_body_or_no_signature_is_refused() -> None:
    fields = sign_fields({"topic": "T"}, b"body", Credentials("RocketMQ", SECRET))
    with pytest.raises(NotPermittedError, match="was not made with the secret key of 'RocketMQ'"):
        check_signature(fields, b"another", SECRETS)
    with pytest.raises(NotPermittedError, match="the request is not signed"):
        check_signature({"topic": "T"}, b"body", SECRETS)


def test_secrets_are_not_shown() -> None:
    assert "12345678" not in repr(Credentials("RocketMQ", SECRET, SECRET))
