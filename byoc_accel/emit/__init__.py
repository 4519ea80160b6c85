"""Plan -> Program: the instructions of every step, with the weights in them and tokens where units depend.

`emit` in emit.py is the way in; conv.py, pool.py and moves.py have the steps, builder.py places the tokens.
verify.py executes the control flow of a program and proves bounds and order (limits.py, races.py).
"""
