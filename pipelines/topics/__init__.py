"""Typed tables of topics."""
