"""Code that the notebooks share: parameters, tables, pictures, and answers in words.

    notebook.py      parameters, and how tables and pictures are shown: on Databricks, in Jupyter, or as a script
    plots.py         pictures, as PNG
    replaying.py     a replay in one call
    lag_words.py, tps_words.py, dead_letter_words.py, archive_words.py, replay_words.py
                     the answer of each notebook in words, and the rows of its tables

The notebooks themselves have parameters, calls of `pipelines`, and what is shown. None of this needs Spark.
"""
