"""Compiled rules for RocketMQ's records, their columns and their properties.

`facts` computes their index data.
"""
