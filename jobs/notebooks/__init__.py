"""Code that the notebooks share.

    notebook.py         parameters, session, and display of DataFrames, charts and reports: on Databricks, in Jupyter,
                        or in a script
    notebook_replay.py  a replay in one call, and its reports

The notebooks themselves have only parameters, questions to the lake, and displays.
"""
