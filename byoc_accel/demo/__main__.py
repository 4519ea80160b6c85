"""``python -m byoc_accel.demo``"""
import sys

from .driver import main

sys.exit(main())
