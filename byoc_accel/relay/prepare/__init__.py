"""Module and parameters -> the module that is matched: rewrites that bring a graph into one form and keep its bytes.

`prepare` in preprocess.py applies them in this order: typed without free parameters, fake-quantized graphs as integer
graphs, uint8 as int8, clamps behind the rounding, paddings into the pools.
"""
