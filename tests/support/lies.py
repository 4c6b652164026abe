"""False answers of a hostile broker or name server, made from the true answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from commitlake.schemas.remoting.fastjson import parse_fastjson
from commitlake.schemas.remoting.frames import Command

Lie = Callable[[Command, Command], "Command | bytes | None"]
"""Maps request and true answer to the sent one: another answer, bytes, or None to close the connection."""


def with_fields(**fields: str) -> Lie:
    """Return a lie that replaces fields in the header of the answer."""
    return lambda _, answer: replace(answer, ext_fields={**answer.ext_fields, **fields})


def without_fields(*names: str) -> Lie:
    """Return a lie that removes fields from the header of the answer."""
    return lambda _, answer: replace(
        answer, ext_fields={name: value for name, value in answer.ext_fields.items() if name not in names}
    )


def with_body(body: bytes) -> Lie:
    """Return a lie that replaces the body of the answer."""
    return lambda _, answer: replace(answer, body=body)


def with_document(change: Callable[[Any], Any]) -> Lie:
    """Return a lie that changes the JSON body of the answer."""
    return lambda _, answer: replace(answer, body=json.dumps(change(parse_fastjson(answer.body))).encode())


def refusal(code: int, remark: str) -> Lie:
    """Return a lie that refuses the request."""
    return lambda request, _: request.reply(code, remark=remark)


def silence(_request: Command, _answer: Command) -> bytes:
    """Never answer."""
    return b""
