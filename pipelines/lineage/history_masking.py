"""Masks personal data in a story by the rules of `pipelines.masking.masks`, before it is shown.

A rule changes bodies, properties, keys or tags. A value that it changes is replaced everywhere else in the story: in
the question, in titles and sentences, in other properties. A body that a rule cannot mask is not shown, and
`Record.body_problem` says why. Names of topics and groups, and the ids of steps, are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from commitlake.pipelines.lineage.message_history import Record, Step, Story
from commitlake.pipelines.masking.masks import BODY, KEYS, PROPERTY, TAGS, Mask, MaskableMessage, MaskError, apply_masks
from commitlake.schemas.layouts.rocketmq import properties as props

HIDDEN = "(masked)"
"""Replacement for a value that a rule removes completely."""
_SHOWN_OF_QUESTION = 200
_OWN = {props.KEYS: KEYS, props.TAGS: TAGS}
Replacements = dict[str, str]


def mask_story(story: Story, masks: Sequence[Mask], key: bytes) -> Story:
    """Return a message history whose records are masked by the given rules.

    Args:
        masks: The rules, in order; a rule for the property KEYS or TAGS applies to keys or tags.
        key: Key for hashes.
    """
    if not masks:
        return story
    rules = [_to_mask_of_keys_or_tags(mask) for mask in masks]
    changed: Replacements = {}
    records = {
        step.id: _mask_record(step.record, rules, key, changed) for step in story.steps if step.record is not None
    }
    shown = _replacement_function(changed)
    return replace(
        story,
        asked=shown(story.asked),
        steps=[_mask_step(step, records.get(step.id), shown) for step in story.steps],
        edges=[replace(edge, text=shown(edge.text)) for edge in story.edges],
        outcomes=[replace(outcome, text=shown(outcome.text)) for outcome in story.outcomes],
        cautions=[shown(caution) for caution in story.cautions],
    )


def _to_mask_of_keys_or_tags(mask: Mask) -> Mask:
    """Convert a masking rule for the property KEYS or TAGS to one for the field `keys` or `tags`."""
    field = _OWN.get(mask.path[0]) if mask.field == PROPERTY else None
    return mask if field is None else replace(mask, field=field, path=())


def _mask_record(record: Record, masks: Sequence[Mask], key: bytes, replacements: Replacements) -> Record:
    properties = {name: value for name, value in record.properties.items() if name not in _OWN}
    message = MaskableMessage(b"", record.keys, record.tags, properties)
    body, problem = record.body, record.body_problem
    for mask in masks:
        if mask.field != BODY:
            message = _apply_mask(message, mask, key, replacements)
        elif body is not None:
            try:
                body = apply_masks(replace(message, body=body), [mask], key).body
            except MaskError as error:
                body, problem = None, f"not shown, because it cannot be masked: {error}"
    return replace(
        record, keys=tuple(message.keys), tags=message.tags, properties=message.properties, body=body,
        body_problem=problem,
    )  # fmt: skip


def _apply_mask(message: MaskableMessage, mask: Mask, key: bytes, replacements: Replacements) -> MaskableMessage:
    """Apply one masking rule for keys, tags or properties to a message, and record the values that it changes."""
    if mask.field == KEYS:
        values = list(message.keys)
    elif mask.field == TAGS:
        values = [message.tags] if message.tags is not None else []
    else:
        value = message.properties.get(mask.path[0])
        values = [value] if value is not None else []
    for value in values:
        if value:
            replacements[value] = mask.mask_value(value, key) or HIDDEN
    try:
        return apply_masks(message, [mask], key)
    except MaskError:  # masked keys would be split
        return replace(message, keys=())


def _replacement_function(replacements: Replacements) -> Callable[[str], str]:
    """Return a function that replaces, in any text, all values that masking rules have changed."""
    cut = {
        value[:_SHOWN_OF_QUESTION]: shown for value, shown in replacements.items() if len(value) > _SHOWN_OF_QUESTION
    }
    known = {**cut, **replacements}
    if not known:
        return lambda text: text
    longest_first = sorted(known, key=len, reverse=True)
    found = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    return lambda text: found.sub(lambda match: known[match[0]], text)


def _mask_step(step: Step, record: Record | None, mask_text: Callable[[str], str]) -> Step:
    def mask_text_if_present(text: str | None) -> str | None:
        return None if text is None else mask_text(text)

    if record is not None:
        record = replace(
            record,
            msg_id=mask_text_if_present(record.msg_id),
            unique_key=mask_text_if_present(record.unique_key),
            born_host=mask_text_if_present(record.born_host),
            producer_group=mask_text_if_present(record.producer_group),
            properties={name: mask_text(value) for name, value in record.properties.items()},
        )
    return replace(step, title=mask_text(step.title), text=mask_text(step.text), record=record)
