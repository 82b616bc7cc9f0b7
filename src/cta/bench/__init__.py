"""Measurements of speed and memory: what `cta bench` runs, and the records it writes."""
