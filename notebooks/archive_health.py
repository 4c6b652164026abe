# Databricks notebook source
# MAGIC %md
# MAGIC # Health of the archive
# MAGIC How new the archive is, what of the brokers' logs it lacks, what its last runs did, and which expectations they
# MAGIC did not meet. Whether all tables agree, message by message, is what `commitlake audit` checks.
# MAGIC
# MAGIC Parameters are widgets on Databricks, and arguments elsewhere (`python notebooks/archive_health.py --help`).
# MAGIC The default is the lake of `./spark-submit.sh demo`.

# COMMAND ----------

import datetime

from commitlake.jobs.archive.health import health_report
from commitlake.jobs.notebooks.notebook import LAKE, Parameter, open_notebook
from commitlake.pipelines.archive.past_runs import read_past_runs
from commitlake.pipelines.archive_health.state import (
    missing_ranges_by_reason,
    read_archive_state,
    read_unmet_expectations,
)

notebook = open_notebook(
    "How new an archive is, and what it lacks.",
    globals(),
    LAKE,
    Parameter("late", "an archive whose last run is older is late, as in 26h", "26h"),
)
lake, now = notebook.lake, datetime.datetime.now(datetime.UTC)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The answer

# COMMAND ----------

state, runs = read_archive_state(lake), read_past_runs(lake, limit=60)
missing, unmet = missing_ranges_by_reason(lake), read_unmet_expectations(lake)
report = health_report(state, missing, unmet, runs, now, notebook.duration_parameter("late"))
notebook.say(report.verdict.sentence)
notebook.show(report.section("lacks"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Stores

# COMMAND ----------

notebook.show(report.section("stores"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is missing

# COMMAND ----------

notebook.show(report.section("missing"), report.section("unmet"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Runs

# COMMAND ----------

notebook.show(report.section("runs"))
