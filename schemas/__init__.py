"""Schemas: binary formats, protocols, tables, and the basic types that every other package uses.

layouts     binary formats on disk        remoting   the wire protocol
tables      the lake's tables             quality    expectations of an archive run
errors      base class of all errors      times      times as numbers and as text
store_files safe access to files in folders that other users may write to
"""
