"""Make the reference pages of the documentation from the code, each time the site is built.

The pages are not kept in the repository. A page that is made from the code cannot be stale, and a change of an option,
a table or a layout does not have to change a second file. `hook.py` is what mkdocs calls; each other module makes one
kind of page as Markdown text, and can be called without mkdocs.
"""
