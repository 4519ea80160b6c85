"""A prepared graph -> its layers: every match of ../patterns.py as a candidate for `support`, or a reason.

`find_layers` in layers.py is the way in. Nothing here changes the graph.
"""
