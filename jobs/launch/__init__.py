"""Starts of jobs where Spark is: by spark-submit, in a cluster, and as a task of Databricks."""
