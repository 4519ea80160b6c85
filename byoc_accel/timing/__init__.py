"""The cost model: cycles of a plan before its weights are encoded. Begin with `timeline.plan_cycles`.

`events` says what each instruction asks of the units, `tiles` and `stretches` what its weights are, `machine` and
`fetch` when it happens: docs/ISA.md, "Timing".
"""
