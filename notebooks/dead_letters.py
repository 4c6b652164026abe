# Databricks notebook source
# MAGIC %md
# MAGIC # Dead letters by cause
# MAGIC Which messages consumer groups gave up, and why, as far as the log tells: the group, the topic that the message
# MAGIC was sent to, its tag, how often it was tried, and what the client says in the property `EXCEPTION` or `ERROR`,
# MAGIC if it sets one. JMQ has no dead letters in its log.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/dead_letters.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

from commitlake.jobs.arguments.lake_names import check_archived_brokers
from commitlake.jobs.dlq.report import dead_letter_topics, dead_letters_report
from commitlake.jobs.notebooks.notebook import BROKER, FROM, LAKE, TO, Parameter, open_notebook
from commitlake.pipelines.dead_letters.causes import group_by_cause
from commitlake.pipelines.tps.coverage import read_coverage
from commitlake.pipelines.tps.overview import make_overview_question
from commitlake.pipelines.tps.report import make_report
from commitlake.schemas.selection import Selection

notebook = open_notebook(
    "Messages that consumer groups gave up, by group and cause.",
    globals(),
    LAKE,
    Parameter("group", "only these groups, with commas between"),
    BROKER,
    FROM,
    TO,
)
lake, chosen, brokers = notebook.lake, notebook.list_parameter("group"), notebook.list_parameter("broker")
start, end = notebook.time_parameter("from"), notebook.time_parameter("to")
check_archived_brokers(lake, brokers)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer

# COMMAND ----------

letters = group_by_cause(lake, Selection(groups=chosen, brokers=brokers, start=start, end=end))
coverage = read_coverage(lake, brokers)
asked = make_overview_question(
    coverage, Selection(topics=dead_letter_topics(chosen), kinds=["dlq"], brokers=brokers, start=start, end=end)
)
report = dead_letters_report(letters, make_report(lake, coverage, asked))
notebook.say(report.verdict.sentence)
notebook.show(report.section("worst"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Causes, the most frequent first

# COMMAND ----------

notebook.show(report.section("causes"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Over time

# COMMAND ----------

notebook.show(report.section("time"))
