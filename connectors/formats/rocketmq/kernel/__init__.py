"""Compiled rules for RocketMQ's records, their columns and their properties.

`facts` makes what indexes say of them.
"""
