"""Functions that find steps between records, one module per cause of a step.

    copies        record to its copy: delivered after a delay, retried, dead, replayed or redriven
    transactions  half message to its commit, rollback, check or end
    client_actions record that a producer sent, ended or recalled, or that a group consumed
    shared_columns      columns that steps of several kinds share

Each function takes members (`pipelines.edges.key_matching`) and returns a table of `STEPS` for each kind of step.
"""
