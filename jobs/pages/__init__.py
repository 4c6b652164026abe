"""HTML pages: one file each, without scripts or anything from elsewhere, which work offline.

frame, text        what all pages have         bars      small charts
quality, verify    the pages, with their templates
"""
