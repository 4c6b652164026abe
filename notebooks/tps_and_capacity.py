# Databricks notebook source
# MAGIC %md
# MAGIC # Messages per second, and capacity
# MAGIC How much the brokers stored, when most, of which topics, and for how long a disk holds it. A time that is not
# MAGIC archived has no figures: 0 means that no message was stored. The figures are those of `commitlake tps`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/tps_and_capacity.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

from commitlake.jobs.arguments.lake_names import check_archived_brokers
from commitlake.jobs.notebooks.notebook import BROKER, FROM, LAKE, TO, Parameter, open_notebook
from commitlake.jobs.tps.report import RatesSource, capacity_section, rates_report
from commitlake.pipelines.topic_minutes.progress import count_uncounted_runs
from commitlake.pipelines.tps.coverage import read_coverage
from commitlake.pipelines.tps.overview import make_overview_question, read_capacity
from commitlake.pipelines.tps.rates import Rates
from commitlake.pipelines.tps.report import make_report
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
lake, topics, brokers = notebook.lake, notebook.list_parameter("topic"), notebook.list_parameter("broker")
start, end, window = (
    notebook.time_parameter("from"),
    notebook.time_parameter("to"),
    notebook.duration_parameter("window"),
)
check_archived_brokers(lake, brokers)
coverage = read_coverage(lake, brokers)
asked = make_overview_question(coverage, Selection(topics=topics, brokers=brokers, start=start, end=end), window)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer

# COMMAND ----------

report = rates_report(make_report(lake, coverage, asked), RatesSource("--lake", lake.root))
capacity = read_capacity(Rates(lake, coverage), asked)
notebook.say(report.verdict.sentence)
notebook.show(report.section("summary"), report.section("do"))
notebook.show(capacity_section(capacity, notebook.number_parameter("disk"), count_uncounted_runs(lake)))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Topics, the busiest first

# COMMAND ----------

notebook.show(report.section("groups"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Over time

# COMMAND ----------

notebook.show(report.section("rates"), report.section("latency"))
