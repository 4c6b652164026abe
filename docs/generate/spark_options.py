"""Make the reference of the Spark sources and sinks: the tables of options that their modules document."""

from __future__ import annotations

from types import ModuleType

from commitlake.connectors.formats.engine import options as logs
from commitlake.connectors.formats.index_entries import entry_options as index_entries
from commitlake.connectors.hbase import options as hbase
from commitlake.connectors.rocketmq import options as connection
from commitlake.connectors.rocketmq.sink import options as sink
from commitlake.connectors.rocketmq.source import options as source
from docs.generate.prose import markdown_of

SECTIONS: tuple[tuple[str, str, ModuleType], ...] = (
    ("`commitlog` and `journal`", "Read the files of a store. `journal` is the same source, for JMQ's stores.", logs),
    ("`consumequeue` and `indexfile`", "Read a broker's own indexes, one row per entry.", index_entries),
    ("Reading `rocketmq`", "Read the topics of live brokers, as a batch or as a stream.", source),
    ("Writing `rocketmq`", "Send the rows of a DataFrame to live brokers, at least once.", sink),
    ("Access keys and TLS", "These variables are read by each process that connects to a broker.", connection),
    ("HBase", "`archive --hbase-option NAME=VALUE` takes the same options.", hbase),
)
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
    for title, purpose, module in SECTIONS:
        text = markdown_of(module.__doc__).partition("\n\n")[2]  # the first sentence is for readers of the code
        parts += [f"## {title}", purpose, text]
    return "\n\n".join(parts) + "\n"
