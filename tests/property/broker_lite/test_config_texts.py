"""Config files are texts from outside: any text is a document or a ValueError; written documents read back equal."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from commitlake.broker_lite.stores.rocketmq import StoreError
from commitlake.broker_lite.stores.rocketmq.config_files import ConfigFiles
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, DIALECTS, Dialect
from commitlake.schemas.remoting.fastjson import parse_fastjson, serialize_fastjson
from tests.support.hypothesis_profiles import load
from tests.support.small_stores import Clock

load()

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = NUMBERS | TEXTS.filter(lambda text: not text.startswith("\0"))
DOCUMENTS = st.recursive(
    NUMBERS | TEXTS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
NAMES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


@given(document=DOCUMENTS)
def test_a_written_document_reads_back_equal(document: object) -> None:
    assert parse_fastjson(serialize_fastjson(document)) == document


@given(document=DOCUMENTS)
def test_plain_json_is_also_read(document: object) -> None:
    text = json.dumps(document)
    assert parse_fastjson(text) == json.loads(text)


@given(text=st.text(st.sampled_from('{}[]",:0123-a\\ \n\0\x01é'), max_size=40) | st.text(max_size=40))
def test_any_text_is_a_document_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_fastjson(text)


def _rocketmq(document: object) -> object:
    return {"dataVersion": {}, "offsetTable": document, "topicConfigTable": document}


def _boltmq(document: object) -> object:
    """Return a document in the forms of BoltMQ's files according to its source."""
    topics = {"topicConfigs": document}
    return {"dataVersion": {"timestamp": 1}, "offsets": document, "tables": document, "topicConfigTable": topics}


def _document_of_boltmqs(document: object) -> object:
    """Return a document in the forms of its documentation, in which a table of groups has nothing around it."""
    return {"offsets": {"g@%RETRY%g": document}, "topicConfigTable": {"topicConfigTable": document}}


@example(name="topics.json", document={(("a", 1),): {}}, form=_boltmq, dialect=BOLTMQ)  # a key that only fastjson has
@given(
    name=st.sampled_from(NAMES),
    document=DOCUMENTS,
    form=st.sampled_from([_rocketmq, _boltmq, _document_of_boltmqs]),
    dialect=st.sampled_from(DIALECTS),
)
def test_any_document_is_a_config_or_a_documented_error(
    name: str,
    document: object,
    form: Callable[[object], object],
    dialect: Dialect,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = Path(tmp_path_factory.getbasetemp()) / "config-texts"
    path = root / "config" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = form(document) if isinstance(document, dict) else document
    path.write_text(serialize_fastjson(whole), encoding="utf-8")
    try:
        config = ConfigFiles(root, Clock(), dialect)
        config.topics.ensure_queue("orders", 3)
        config.groups.find_or_create("mail")
        config.consumer_offsets.commit("orders", "mail", 0, config.consumer_offsets.get("orders", "mail", 0) or 0)
        config.delay_offsets.set(3, config.delay_offsets.get(3) + 1)
        config.save()
        again = ConfigFiles(root, Clock(), dialect)
        assert again.consumer_offsets.get("orders", "mail", 0) == config.consumer_offsets.get("orders", "mail", 0)
        assert again.topics.entries.keys() >= {"orders"}
        assert again.groups.entries.keys() >= {"mail"}
    except StoreError as error:
        assert "expected" in str(error)
    finally:
        for file in path.parent.iterdir():
            file.unlink()
