"""Functions that find steps between records, one module per cause of a step.

    delays         delayed record to its copy, by level or by timer
    retries        failed record to its retry or dead letter
    transactions   half message to its commit, rollback, check or end
    replays        archived message to its replayed or redriven copy
    producers      record or half message that a producer sent, ended or recalled, from traces
    consumptions   record that a group consumed, from traces and from consume logs
    common         columns that steps of several kinds share
    examples       small tables for the examples in the docstrings of these modules

Each function takes members (`pipelines.edges.family`) and returns a table of `STEPS` for each kind of step.
"""
