# Databricks notebook source
# MAGIC %md
# MAGIC # An order's life
# MAGIC What happened to the messages of a business key: sent, delayed, retried, committed, dead, redriven, consumed.
# MAGIC It has the picture, and how it stands in each consumer group. The answer is that of `commitlake lineage`.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/an_orders_life.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import commitlake
from commitlake.jobs.lineage.report import lineage_report, story_steps_section
from commitlake.jobs.notebooks.notebook import FROM, LAKE, TO, Parameter, open_notebook

notebook = open_notebook(
    "What happened to the messages of a business key.",
    globals(),
    LAKE,
    Parameter("key", "a business key", "order-4711"),
    FROM,
    TO,
)
lake = commitlake.open(notebook.lake_location, notebook.spark)
asked = {
    "key": notebook.values["key"],
    "since": notebook.time_parameter("from"),
    "until": notebook.time_parameter("to"),
}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Its messages, and what is in them

# COMMAND ----------

messages = lake.messages(**asked, body="text").orderBy("store_timestamp", "broker", "physical_offset")
notebook.display("Messages", messages.select("store_timestamp", "topic", "kind", "tags", "reconsume_times", "body"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer
# MAGIC It is read from the files of the lake by this process, with the credentials of its environment.

# COMMAND ----------

story = lake.lineage(**asked)
report = lineage_report(story, [])
notebook.print_sentences("", report.verdict.sentence)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The picture
# MAGIC Steps on an axis of time, a lane for each topic and group. `commitlake lineage --html` writes a page with more.

# COMMAND ----------

notebook.show_sections(report.find_section("picture"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Step by step

# COMMAND ----------

notebook.show_sections(story_steps_section(story))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Outcomes, and what is not known

# COMMAND ----------

notebook.show_sections(report.find_section("outcomes"), report.find_section("cautions"))
