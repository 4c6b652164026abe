"""Execution of tasks in this process, in several processes, or on Spark.

runner         interface: run a function over many tasks
local_runner   on this machine          spark_runner   on Spark          pool  distribution of tasks to workers
fork_server    start of processes on this machine
classic_spark, connect_session  cores, tags and progress of a session, for the runner
worker_check   packages of workers on other machines
kubernetes_executor  entry point of an executor's pod
side_process   one process that starts early and answers calls
spark_session  Spark session of a job   jvm, java, jars  its requirements
gc_freeze      garbage collection in worker processes          memory         source of Arrow's memory
spark_versions, limited_streams  what differs between versions of Spark
spark_errors   errors of failed queries  spark_plan_check  checks of SELECT statements
"""
