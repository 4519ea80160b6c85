"""What may be offloaded, and the reason when not: candidates of any frontend -> Region.

constraints.py has one function per rule, whose docstring is the documented rule; candidate.py is what a frontend gives,
`build_region` in build.py what it gets. Nothing here knows TVM.
"""
