"""A Relay function's body as a graph: its nodes, their constants and attributes, and one walk that rewrites it.

Everything else here reads functions through this package; it knows nothing of patterns or regions.
"""
