"""Program -> Image: the bytes that lie in flash, checksummed, versioned, used in place.

layout.py is the table of records that reader, writer, C header and docs/FORMAT.md follow; `pack` and `unpack` in
image.py are the way in and out. registers.py is the register map of a device.
"""
