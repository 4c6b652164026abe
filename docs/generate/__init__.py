"""Make pages and pictures of the documentation from the code.

`reference.py` writes the pages of the reference, and each module that it calls makes one kind of page as Markdown text;
a test compares the pages with the code. `terminal_picture.py` draws the picture of a terminal. `hook.py` is what mkdocs
calls when it builds the site.
"""
