"""Layers -> regions that compile, as external functions that the caller calls.

`find_regions` in search.py is the way in: group the layers, draft a function per group, calibrate, quantize and compile
it, and begin again without what did not work.
"""
