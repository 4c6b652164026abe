"""Measurements; `poe bench` runs them."""
