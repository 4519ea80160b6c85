"""A compiled image -> a TVM module that runs at once and exports: object files, the linker, the C++ module class.

../hook.py calls it for every external function; nothing here knows how an image is made.
"""
