"""Make the reference of the Spark sources and sinks: tables of their declared options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commitlake.connectors.formats.index_entries.entry_options import EntryOptions, IndexFileOptions, QueueOptions
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.reading.options import ReadOptions
from commitlake.connectors.rocketmq import options as connection
from commitlake.connectors.rocketmq.sink.options import SinkOptions
from commitlake.connectors.rocketmq.source.options import SourceOptions
from commitlake.connectors.source_options import DeclaredOptions, OptionUse, SourceOption
from docs.generate.prose import markdown_of, table


@dataclass(frozen=True)
class Section:
    """Section of the page: the options of a class.

    Attributes:
        base: class whose options are described in another section.
    """

    title: str
    purpose: str
    options: type[DeclaredOptions]
    base: type[DeclaredOptions] = DeclaredOptions


SECTIONS: Sequence[Section] = (
    Section(
        "`commitlog` and `journal`",
        "Read the files of a store. `journal` is the same source, for JMQ's stores.",
        ReadOptions,
    ),
    Section(
        "`consumequeue` and `indexfile`", "Read a broker's own indexes, one row per entry. Both take:", EntryOptions
    ),
    Section("`consumequeue`", "Besides those of both:", QueueOptions, EntryOptions),
    Section("`indexfile`", "Besides those of both:", IndexFileOptions, EntryOptions),
    Section("Reading `rocketmq`", "Read the topics of live brokers, as a batch or as a stream.", SourceOptions),
    Section("Writing `rocketmq`", "Send the rows of a DataFrame to live brokers, at least once.", SinkOptions),
    Section("HBase", "`archive --hbase-option NAME=VALUE` takes the same options.", HBaseOptions),
)
_USES = {
    OptionUse.BATCH: "Only batches (`spark.read`) take:",
    OptionUse.STREAM: "Only streams (`spark.readStream`) take:",
}
_INTRO = """# Spark source options

Register the sources in a session once:

```python
from commitlake import register

register(spark)
df = spark.read.format("commitlog").option("topics", "orders").load("/data/rocketmq/store")
```

An unknown option, or a value that does not fit, is an error. Names of options are the same in any case of letters.
"""


def page() -> str:
    """Return the page of all options."""
    parts = [_INTRO]
    for section in SECTIONS:
        parts += [f"## {section.title}", section.purpose, *_tables(section)]
    parts += ["## Access keys and TLS", "These variables are read by each process that connects to a broker."]
    parts.append(markdown_of(connection.__doc__).partition("\n\n")[2])  # the first sentence is for readers of the code
    return "\n\n".join(parts) + "\n"


def _tables(section: Section) -> Iterable[str]:
    """Yield the table of the options for all uses, then the tables of those for one use, each with its heading."""
    shared = section.base.declared_options()
    own = [option for field, option in section.options.declared_options().items() if field not in shared]
    yield _table(option for option in own if option.use is OptionUse.ALWAYS)
    for use, heading in _USES.items():
        rows = [option for option in own if option.use is use]
        if rows:
            yield heading
            yield _table(rows)


def _table(options: Iterable[SourceOption]) -> str:
    return table(
        ("option", "default", "meaning"), ((option.name, option.default_text, option.text) for option in options)
    )
