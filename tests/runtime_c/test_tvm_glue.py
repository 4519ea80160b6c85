"""The cases of the TVM glue, in a process of their own.

They play TVM's part (its error setter, its absence), which works only where no other test has loaded TVM.
"""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_cases_in_a_process_without_tvm(root: Path):
    cases = Path(__file__).with_name("cases_tvm_glue.py")
    result = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)], cwd=root,
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-1000:]
    assert " passed" in result.stdout and "failed" not in result.stdout
