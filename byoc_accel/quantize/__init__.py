"""Region -> QRegion: activation ranges, scales, folded batch norm, int8 weights and fixed-point factors.

`quantize` in quantize.py is the way in; it chooses lower_float.py or lower_int8.py. qregion.py has the types, and
interpret.py their meaning in NumPy, which simulator, runtime and board equal in every byte. docs/numerics.md has the
formulas.
"""
