"""Answers of a hostile broker or name server: the true answer with something wrong in it, or something else."""

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
    """The true answer, but for some fields of its header."""
    return lambda _, answer: replace(answer, ext_fields={**answer.ext_fields, **fields})


def without_fields(*names: str) -> Lie:
    """The true answer without some fields of its header."""
    return lambda _, answer: replace(
        answer, ext_fields={name: value for name, value in answer.ext_fields.items() if name not in names}
    )


def with_body(body: bytes) -> Lie:
    """The true answer with another body."""
    return lambda _, answer: replace(answer, body=body)


def with_document(change: Callable[[Any], Any]) -> Lie:
    """The true answer with a changed body, which is JSON."""
    return lambda _, answer: replace(answer, body=json.dumps(change(parse_fastjson(answer.body))).encode())


def refusal(code: int, remark: str) -> Lie:
    """A refusal in place of the answer."""
    return lambda request, _: request.reply(code, remark=remark)


def silence(_request: Command, _answer: Command) -> bytes:
    """No answer, ever."""
    return b""
