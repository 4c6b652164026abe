"""Where code runs: in this process, in several, or on Spark.

runner         a function over many tasks: the interface
local_runner   on this machine          spark_runner   on Spark          pool  how tasks are given to workers
fork_server    how processes are started on this machine
side_process   one process that is started early, and called
spark_session  a job's session          jvm, java, jars  what it needs         spark_noise  what it says to nobody
settled        what a worker's process does after a task          memory         where Arrow's memory comes from
spark_errors   how Spark tells of failed queries  spark_plan_check  what a SELECT must not do
"""
