"""Options of writes to live brokers."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.connectors.reading.options import BodyForm
from commitlake.connectors.rocketmq.errors import InvalidMessageError
from commitlake.connectors.rocketmq.producers.messages import DEFAULT_MAX_BODY_BYTES, check_topic
from commitlake.connectors.rocketmq.sink.prepared_rows import RowSettings, system_topic_problem
from commitlake.connectors.rocketmq.sink.request_batches import BatchLimits
from commitlake.connectors.rocketmq.sink.sender import DEFAULT_GROUP, RowSender, SendSettings
from commitlake.connectors.rocketmq.spark_options import ConnectionOptions, load_credentials, parse_group_name
from commitlake.connectors.source_options import byte_count, integer_parser, option, parse_flag
from commitlake.schemas.errors import UsageError


def _parse_topic(text: str) -> str:
    try:
        return check_topic(text)
    except InvalidMessageError as error:
        raise UsageError(f"option {error}") from None


def _parse_body_form(text: str) -> BodyForm:
    if text.lower() not in (BodyForm.STORED, BodyForm.DECOMPRESSED):
        raise ValueError(f"expected one of {BodyForm.STORED} and {BodyForm.DECOMPRESSED}, found {text!r}")
    return BodyForm(text.lower())


@dataclass(frozen=True)
class SinkOptions(ConnectionOptions):
    """Options for writing a DataFrame or a stream to topics."""

    topic: str | None = option("topic", _parse_topic, None, "topic for all rows", shown="the column")
    has_system_topics: bool = option(
        "systemTopics",
        parse_flag,
        False,
        "true: rows may also go to topics of retries and dead letters, `%RETRY%` and `%DLQ%`, and to others of the "
        "broker's, if it accepts them; otherwise such rows are refused",
    )
    group: str = option("group", parse_group_name, DEFAULT_GROUP, "the producer group")
    body: BodyForm | None = option(
        "body",
        _parse_body_form,
        None,
        "stored: `body` is as it was stored, and `body_codec` names its compression; decompressed: it is as the "
        "producer sent it. Required if `body_codec` names a compression for any row",
    )
    max_body_bytes: int = option("maxBodyBytes", byte_count, DEFAULT_MAX_BODY_BYTES, "larger bodies are refused")
    max_batch_bytes: int = option(
        "maxBatchBytes",
        byte_count,
        1 << 20,
        "bytes of one request; a larger row is sent alone. Brokers accept 4 MiB by default",
    )
    max_batch_messages: int = option("maxBatchMessages", integer_parser(1, unit="message"), 1000, "rows of one request")
    max_in_flight: int = option(
        "maxInFlight", integer_parser(1, unit="request"), 8, "maximum number of a task's requests without an answer"
    )
    retry_seconds: int = option(
        "retrySeconds", integer_parser(0, unit="seconds"), 60, "time for which rows are retried, from the first attempt"
    )

    def check(self) -> None:
        """Check the addresses, and that messages may be sent to the topic."""
        super().check()
        if self.topic is not None and not self.has_system_topics:
            problem = system_topic_problem(self.topic)
            if problem is not None:
                raise UsageError(f"option {problem}")

    @property
    def settings(self) -> SendSettings:
        """Settings for sending rows."""
        is_stored = None if self.body is None else self.body is BodyForm.STORED
        return SendSettings(
            self.group,
            RowSettings(self.topic, self.max_body_bytes, is_stored, self.has_system_topics),
            BatchLimits(self.max_batch_bytes, self.max_batch_messages),
            max_in_flight=self.max_in_flight,
            answer_seconds=self.timeout_ms / 1000,
            retry_seconds=self.retry_seconds,
        )

    def open_sender(self) -> RowSender:
        """Create a client, in this process, that sends rows to the brokers.

        Raises:
            UsageError: if the keys, or the TLS settings, are not valid.
        """
        return RowSender(self.client_options, self.settings, load_credentials(self.credentials_provider))
