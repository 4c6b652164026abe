"""Code that the notebooks share.

    notebook.py         parameters, and display of a report's sections: on Databricks, in Jupyter, or in a script
    notebook_replay.py  a replay in one call, and its reports

The notebooks themselves have only parameters, calls, and displays. None of this needs Spark.
"""
