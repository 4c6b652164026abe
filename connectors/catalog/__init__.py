"""Unity Catalog: lakes by name, for Databricks and for the open source server.

names        catalog.schema, where tables are, and the error     client         requests to a server
server       address and token, from the environment              lookup         the root of a named lake
tables       a Delta table as the catalog describes it            registration   a lake's tables and its volume by name
credentials  temporary credentials for a place

A lake in a catalog is a lake like any other: Delta tables and packs below one root, written by one commit protocol.
The catalog only knows the names of its tables. A process queries it once, before anything is read or written.

The code needs only the standard library. Databricks' own SDK supports more ways to log in, but not the open source
server, and the few requests in use are the same for both.
"""
