"""Region: the float or quantized graph of one offloaded region as a frontend found it, NHWC, one node per op.

region.py has the types, verify.py what must hold, text.py its text and digest, interpret.py its meaning in NumPy,
geometry.py the sizes of windows, functions.py the elementwise functions, ports.py the host's layouts.
"""
