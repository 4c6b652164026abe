"""Spark sessions and their set-up, tasks on executors, and support for clusters.

session, jvm, java, jars          a job's session, its JVM, and what both require
spark_defaults, submit_arguments  settings of an installed Spark, and arguments of spark-submit
classic_session, connect_session cores, tags and progress of a session, in this process or at a server
runner  tasks on executors; `connectors.runtime` runs them on this machine
worker_check, worker_environment the Python of workers, and the archive that takes this package to them
yarn, yarn_application, kubernetes_executor, driver_output  drivers and executors on other machines
versions, limited_stream_reader                             what differs between versions of Spark
plan_check                                                  checks of SELECT statements
"""
