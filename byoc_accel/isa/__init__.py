"""The instruction set: one table (table.py) from which encoder, decoder, assembler, C header and docs/ISA.md come.

semantics.py is the meaning of each instruction, machine.py runs it in NumPy. payload.py, parameters.py and the files
lane_*.py are the forms of weights and channel parameters inside instructions.
"""
