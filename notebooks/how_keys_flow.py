# Databricks notebook source
# MAGIC %md
# MAGIC # How keys flow
# MAGIC Which topics feed which on a day, by business keys that pass from one topic to another: how often, how fast.
# MAGIC The answer is that of `commitlake lineage --topics`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/how_keys_flow.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

from commitlake.jobs.lineage.topics import topics_report
from commitlake.jobs.notebooks.notebook import FROM, LAKE, TO, open_notebook
from commitlake.pipelines.lineage.topic_graph import build_topic_graph, complete_time_range

notebook = open_notebook("Which topics feed which, by keys that pass.", globals(), LAKE, FROM, TO)
start, end = complete_time_range(notebook.lake, notebook.time_parameter("from"), notebook.time_parameter("to"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer
# MAGIC Of the last day that is archived, where no time is given.

# COMMAND ----------

report = topics_report(build_topic_graph(notebook.lake, start, end), [])
notebook.say(report.verdict.sentence)
notebook.show(report.section("meaning"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Links, the most passes first

# COMMAND ----------

notebook.show(report.section("picture"), report.section("links"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Topics

# COMMAND ----------

notebook.show(report.section("topics"))
