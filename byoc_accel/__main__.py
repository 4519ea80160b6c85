"""``python -m byoc_accel``: the same as the program byoc-accel."""
import sys

from .cli import main

sys.exit(main())
