"""Code that the notebooks share: parameters, tables, pictures, and answers in words.

    notebook.py      parameters, and display of tables and pictures: on Databricks, in Jupyter, or in a script
    plots.py         pictures, as PNG
    replaying.py     a replay in one call
    lag_words.py, tps_words.py, dead_letter_words.py, archive_words.py, replay_words.py
                     the answer of each notebook in words, and the rows of its tables

The notebooks themselves have only parameters, calls of `pipelines`, and displays. None of this needs Spark.
"""
