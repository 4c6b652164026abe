"""The options of the sink `rocketmq`, checked at once: an unknown or wrong one is an error, never a default.

| option | default | meaning |
| --- | --- | --- |
| namesrv | (needed) | name servers, `host:port`, separated by semicolons or commas |
| brokers | (none) | instead of namesrv, if there is no name server: `host:port` of each broker; it must give its |
| | | settings to any client (GET_BROKER_CONFIG) |
| topic | the column | topic for all rows |
| systemTopics | false | true: rows may also go to topics of retries and dead letters, `%RETRY%` and `%DLQ%`, and to |
| | | others of the broker's, if it accepts them; otherwise such rows are refused |
| group | commitlake_writer | the producer group |
| body | (none) | stored: `body` is as it was stored, and `body_codec` names its compression; decompressed: it is |
| | | as the producer sent it. Required if `body_codec` names a compression for any row |
| maxBodyBytes | 4 MiB | larger bodies are refused |
| maxBatchBytes | 1 MiB | bytes of one request; a larger row is sent alone. Brokers accept 4 MiB by default |
| maxBatchMessages | 1000 | rows of one request |
| maxInFlight | 8 | maximum number of a task's requests without an answer |
| timeoutMs | 10000 | time limit for an answer |
| retrySeconds | 60 | time for which rows are retried, from the first attempt |
| tlsConfig | the environment's | a `tls.properties` file on every machine, see `connectors.rocketmq.options` |
| credentialsProvider | the environment | as in `connectors.rocketmq.source.options` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitlake.connectors.formats.engine.errors import OptionError
from commitlake.connectors.formats.engine.option_values import OptionValues
from commitlake.connectors.formats.engine.options import BodyForm
from commitlake.connectors.option_names import known_options
from commitlake.connectors.rocketmq.errors import InvalidMessageError
from commitlake.connectors.rocketmq.messages import DEFAULT_MAX_BODY_BYTES, check_group, check_topic
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.sink.parcels import BatchLimits
from commitlake.connectors.rocketmq.sink.prepared_rows import RowSettings, system_topic_problem
from commitlake.connectors.rocketmq.sink.sender import DEFAULT_GROUP, RowSender, SendSettings
from commitlake.connectors.rocketmq.spark_options import (
    DEFAULT_TIMEOUT_MS,
    SHARED,
    client_options,
    credentials_of,
    provider,
    refuse_secrets,
)

KNOWN = (*SHARED, "topic", "systemTopics", "body", "maxBodyBytes", "maxBatchBytes", "maxBatchMessages", "maxInFlight")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write; see the module's table.

    Attributes:
        client: addresses, time limits and other settings of the connections.
        settings: settings for sending rows.
        credentials_provider: see `spark_options.credentials_of`.
    """

    client: ClientOptions
    settings: SendSettings
    credentials_provider: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Parse options as Spark passes them: strings, with names in any case.

        Raises:
            OptionError: if a name is not known, or a value is not valid.
        """
        refuse_secrets(given)
        values = known_options(given, KNOWN, OptionError)
        read = OptionValues(values)
        client = client_options(values, read)
        try:
            group = check_group(values.get("group", DEFAULT_GROUP))
            topic = check_topic(values["topic"]) if "topic" in values else None
        except InvalidMessageError as error:
            raise OptionError(f"option {error}") from None
        has_system_topics = read.flag("systemTopics", default=False)
        if topic is not None and not has_system_topics and (problem := system_topic_problem(topic)) is not None:
            raise OptionError(f"option {problem}")
        max_body_bytes = read.size("maxBodyBytes", DEFAULT_MAX_BODY_BYTES)
        settings = SendSettings(
            group,
            RowSettings(topic, max_body_bytes, _is_stored(values, read), has_system_topics),
            BatchLimits(read.size("maxBatchBytes", 1 << 20), read.least("maxBatchMessages", 1000, 1, "message")),
            max_in_flight=read.least("maxInFlight", 8, 1, "request"),
            answer_seconds=read.least("timeoutMs", DEFAULT_TIMEOUT_MS, 1, "ms") / 1000,
            retry_seconds=read.least("retrySeconds", 60, 0, "seconds"),
        )
        return cls(client, settings, provider(values))

    def open_sender(self) -> RowSender:
        """Create a sender in this process.

        Raises:
            OptionError: if the keys, or the TLS settings, are not valid.
        """
        return RowSender(self.client, self.settings, credentials_of(self.credentials_provider))


def _is_stored(values: Mapping[str, str], read: OptionValues) -> bool | None:
    if "body" not in values:
        return None
    form = read.choice("body", BodyForm, BodyForm.DECOMPRESSED)
    if form is BodyForm.NONE:
        raise OptionError(f"option body: expected stored or decompressed, found {values['body']!r}")
    return form is BodyForm.STORED
