"""QRegion -> Plan: which ops run as one step, in which blocks, and at which SRAM addresses.

`schedule` in schedule.py is the way in. plan.py has the types, cost.py and chain_cost.py estimate what a
choice costs in cycles, verify.py says what must hold. byoc_accel/timing has the cycles of a finished plan.
"""
