"""What data looks like.

layouts     binary formats on disk        remoting   the wire protocol
tables      the lake's tables             quality    expectations of an archive run
errors      the root of all errors         times      times as numbers and as text
store_files how files in a folder that others may write to are opened
"""
