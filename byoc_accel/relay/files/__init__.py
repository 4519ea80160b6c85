"""Files on both ends: model files in through TVM's importers, libraries out, and libraries run on arrays.

What the commands of byoc-accel and the demo call.
"""
