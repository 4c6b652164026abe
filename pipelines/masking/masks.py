"""Masks: replacement of values in messages before the messages are archived or sent again.

A mask names a field and a rule, as in `body.customer.email=hash`:

    field                          rule
    body           the whole body  null      the field is removed; in a JSON body, it becomes null
    body.a.b       of a JSON body  hash      64 hexadecimal digits, the same for the same value and key
    property.NAME  a property      last:N    all characters but the last N become *
    keys, tags                     text:T    the text T
                                   truncate:N  the first N characters

A message with a field that cannot be masked is an error: it is not sent, and it is archived without its body.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commitlake.pipelines.masking.errors import MaskError, MaskRuleError
from commitlake.pipelines.masking.json_values import JsonError, replace_values
from commitlake.schemas.layouts.numbers import parse_int

BODY, PROPERTY, KEYS, TAGS = "body", "property", "keys", "tags"
KEY_VARIABLE = "COMMITLAKE_MASK_KEY"
_MAX_KEPT = 1000
_ALONE, _WITH_ARGUMENT = frozenset({"null", "hash"}), frozenset({"last", "text", "truncate"})
_FIELD = re.compile(r"(body)((?:\.[^.=]+)*)|(property)\.([^=]+)|(keys)|(tags)")
_EXAMPLE = "as in body.customer.email=hash, property.phone=last:4, keys=null or body.note=text:removed"


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a message that masks can change.

    Attributes:
        body: the body as its producer sent it.
        keys: business keys.
        tags: its tag; None if it has none.
        properties: all other properties.
    """

    body: bytes
    keys: Sequence[str]
    tags: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Mask:
    """A field and the rule for its replacement.

    Attributes:
        field: `body`, `property`, `keys` or `tags`.
        path: names in a JSON body from the top; for a property, its name.
        rule: `null`, `hash`, `last`, `truncate` or `text`.
        argument: the number for `last` and `truncate`, the text for `text`.
    """

    field: str
    path: tuple[str, ...]
    rule: str
    argument: str = ""

    def value(self, value: str, key: bytes) -> str | None:
        """Return the replacement of a value; None removes it."""
        if self.rule == "hash":
            return hmac.digest(key, value.encode("utf-8", "surrogatepass"), "sha256").hex()
        if self.rule == "last":
            shown = int(self.argument)
            return "*" * max(0, len(value) - shown) + (value[-shown:] if shown else "")
        if self.rule == "truncate":
            return value[: int(self.argument)]
        return self.argument if self.rule == "text" else None

    def __str__(self) -> str:
        argument = f":{self.argument}" if self.rule in _WITH_ARGUMENT else ""
        return f"{'.'.join((self.field, *self.path))}={self.rule}{argument}"


def parse_mask(text: str) -> Mask:
    """Parse a mask.

    Raises:
        MaskRuleError: if the text is not a mask.
    """
    field, equals, rule = text.partition("=")
    named = _FIELD.fullmatch(field)
    name, colon, argument = rule.partition(":")
    is_known = name in (_WITH_ARGUMENT if colon else _ALONE)
    if not equals or named is None or not is_known:
        raise MaskRuleError(f"{text!r} is not a mask: expected FIELD=RULE, {_EXAMPLE}")
    if name in {"last", "truncate"} and parse_int(argument, 0, _MAX_KEPT) is None:
        raise MaskRuleError(f"mask {text!r}: expected {name}:N, with a number of characters from 0 to {_MAX_KEPT}")
    body, path, _, wanted, *_ = named.groups()
    if body and not path and name == "null":
        raise MaskRuleError(f"mask {text!r}: a message has a body; give it another one with body=text:...")
    if wanted:
        return Mask(PROPERTY, (wanted,), name, argument)
    return Mask(field.partition(".")[0], tuple(path.split(".")[1:]) if path else (), name, argument)


def check_key(masks: Sequence[Mask], key: bytes) -> None:
    """Check that there is a key if a mask needs one.

    Raises:
        MaskRuleError: if there is none. Without a key, the hash of a telephone number can be found by trying all
            numbers.
    """
    if not key and any(mask.rule == "hash" for mask in masks):
        raise MaskRuleError(f"the rule hash needs a key: set {KEY_VARIABLE} in the environment")


def apply_masks(message: Message, masks: Sequence[Mask], key: bytes) -> Message:
    """Return a message with its fields masked.

    Args:
        message: the message, decompressed.
        masks: the masks, applied in this order.
        key: key of the hashes.

    Raises:
        MaskError: if the message cannot be masked.
    """
    for mask in masks:
        message = _masked(message, mask, key)
    return message


def _masked(message: Message, mask: Mask, key: bytes) -> Message:
    body, keys, tags, properties = message.body, message.keys, message.tags, message.properties
    if mask.field == KEYS:
        keys = [changed for value in keys if (changed := mask.value(value, key))]
        if any(" " in value for value in keys):
            raise MaskError("keys: expected a mask without a blank, which separates keys")
    elif mask.field == TAGS:
        tags = None if tags is None else mask.value(tags, key)
    elif mask.field == PROPERTY:
        (name,) = mask.path
        values = ((own, mask.value(value, key) if own == name else value) for own, value in properties.items())
        properties = {own: value for own, value in values if value is not None}
    else:
        body = _masked_body(body, mask, key)
    return Message(body, keys, tags, properties)


def _masked_body(body: bytes, mask: Mask, key: bytes) -> bytes:
    try:
        if mask.path:
            return replace_values(body, mask.path, lambda value: mask.value(value, key))
        return (mask.argument if mask.rule == "text" else str(mask.value(body.decode(), key))).encode()
    except UnicodeDecodeError:
        raise MaskError("body: expected text in UTF-8, to mask it") from None
    except JsonError as error:
        raise MaskError(f"body: {error}") from None
