# Databricks notebook source
# MAGIC %md
# MAGIC # Messages per second, and capacity
# MAGIC How much the brokers stored, when most, of which topics, and for how long a disk holds it. A time that is not
# MAGIC archived has no figures: 0 means that no message was stored. The figures are those of `commitlake tps`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/tps_and_capacity.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`. Pictures need `pip install 'commitlake[notebooks]'`.

# COMMAND ----------

from commitlake.jobs.cli.lake_names import check_brokers
from commitlake.jobs.notebooks import tps_words as words
from commitlake.jobs.notebooks.notebook import BROKER, FROM, LAKE, TO, Parameter, open_notebook
from commitlake.pipelines.topic_minutes.progress import count_uncounted_runs
from commitlake.pipelines.tps.coverage import read_coverage
from commitlake.pipelines.tps.overview import overview, read_capacity
from commitlake.pipelines.tps.rates import Rates
from commitlake.schemas.selection import Selection

notebook = open_notebook(
    "Messages per second of any past time, by topic, and how much log a day has.",
    globals(),
    LAKE,
    FROM,
    TO,
    Parameter("topic", "only these topics, with commas between"),
    BROKER,
    Parameter("window", "length of the pictures' windows, as in 5m or 1h; chosen by the time where it is empty"),
    Parameter("disk", "size of the brokers' disks for the log, in GiB", "100"),
)
lake, topics, brokers = notebook.lake, notebook.texts("topic"), notebook.texts("broker")
start, end, window = notebook.time("from"), notebook.time("to"), notebook.length("window")
check_brokers(lake, brokers)
coverage = read_coverage(lake, brokers)
asked = overview(coverage, Selection(topics=topics, brokers=brokers, start=start, end=end), window)
rates = Rates(lake, coverage)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer

# COMMAND ----------

by_topic = rates.rows(asked.by_topic, has_quantiles=True)
total = next(iter(rates.rows(asked.of_all)), None)
capacity = read_capacity(rates, asked.of_all)
notebook.say(*words.answer(asked.by_topic, by_topic, total, coverage, capacity, count_uncounted_runs(lake)))
notebook.say(words.disk_answer(capacity, notebook.number("disk")))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Topics, the busiest first

# COMMAND ----------

notebook.show("Topics", words.topic_rows(by_topic))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Over time

# COMMAND ----------

windows = rates.rows(asked.by_window)
notebook.show("Windows with most messages", words.busiest_windows(windows))
notebook.draw("messages_per_second", lambda: words.picture_of_messages(windows))
notebook.draw("bytes_per_second", lambda: words.picture_of_bytes(windows))
