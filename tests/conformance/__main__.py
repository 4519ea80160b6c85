"""Write docs/CONFORMANCE.md: python -m tests.conformance [--check], in a checkout."""
from __future__ import annotations

import sys

from byoc_accel import generated

from .table import GENERATOR, PATH, text

sys.exit(generated.run(GENERATOR, "Write the table of ONNX conformance.", {PATH: text()}, None))
