"""Execution of tasks on this machine: in this process, or in several. `connectors.spark` runs them on executors.

runner, partition_files  interface of all runners, and rows that tasks hand to each other
local_runner, pool       runners on this machine, and the distribution of tasks to workers
fork_server              start of processes
side_process             a process that starts early and answers calls
blocked_imports, memory  imports and memory of worker processes
"""
