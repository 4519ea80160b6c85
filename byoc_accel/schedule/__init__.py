"""QRegion -> Plan: which ops run as one step, in which blocks, and at which SRAM addresses.

`schedule` in schedule.py is the way in. plan.py has the types, cost.py and timeline.py what a choice costs in cycles,
verify.py what must hold.
"""
