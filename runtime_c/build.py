"""Build of the cffi module ``byoc_accel._wia_runtime``: the C runtime in front of the simulator.

setup.py names `ffibuilder`; ``make`` or ``python setup.py build_ext --inplace`` builds it into byoc_accel/. Paths are
relative to the repository's root, as setuptools wants them.
"""
from __future__ import annotations

from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent
STANDALONE = "main.c"  # hw_sim's command-line runner is a program of its own
INCLUDE_DIRS = ["runtime_c/include", "runtime_c/hal", "hw_sim/include"]

#: What byoc_accel/runtime.py uses of wia.h, wia_sim.h and hal_sim.h; cffi checks it against the headers.
DECLARATIONS = """
typedef struct { ...; } wia_hal_t;
typedef struct { uint64_t timeout_cycles; uint64_t address_offset; uint64_t max_steps; } wia_config_t;
typedef struct { void *data; size_t bytes; } wia_tensor_t;
typedef struct {
    const wia_tensor_t *inputs; uint32_t input_count;
    const wia_tensor_t *outputs; uint32_t output_count;
    wia_tensor_t scratch; wia_tensor_t staging;
} wia_tensors_t;
typedef struct {
    const char *name; const char *target_name; uint32_t inputs; uint32_t outputs; uint32_t layers;
    uint32_t program_bytes; uint32_t image_bytes; uint32_t alignment_bytes;
    uint64_t scratch_bytes; uint64_t staging_bytes;
} wia_summary_t;
typedef struct { uint32_t where; uint32_t found; uint32_t expected; } wia_fault_t;
typedef struct { wia_summary_t summary; wia_fault_t fault; uint64_t cycles; ...; } wia_t;
int wia_init(wia_t *wia, const wia_hal_t *hal, const wia_config_t *config);
int wia_load(wia_t *wia, const void *image, size_t image_bytes);
int wia_run(wia_t *wia, const wia_tensors_t *tensors);
const char *wia_error_text(int code);
#define WIA_SIM_OK ...
typedef struct { const uint8_t *target; ...; } wia_sim_desc_t;
size_t wia_sim_size(const wia_sim_desc_t *desc);
typedef struct { wia_hal_t hal; ...; } wia_hal_sim_t;
int wia_hal_sim_init(wia_hal_sim_t *device, const wia_sim_desc_t *desc, const uint8_t *digest, void *memory,
                     size_t bytes);
"""


def sources() -> list[str]:
    """C files of runtime, simulator HAL and simulator, relative to the root, in a fixed order."""
    found = sorted(ROOT.glob("runtime_c/src/*.c")) + [ROOT / "runtime_c/hal/hal_sim.c"]
    found += [p for p in sorted(ROOT.glob("hw_sim/src/*.c")) if p.name != STANDALONE]
    return [p.relative_to(ROOT).as_posix() for p in found]


ffibuilder = FFI()
ffibuilder.cdef(DECLARATIONS)
ffibuilder.set_source("byoc_accel._wia_runtime", '#include "wia/wia.h"\n#include "hal_sim.h"\n', sources=sources(),
                      include_dirs=INCLUDE_DIRS, extra_compile_args=["-std=c11", "-O2", "-g0"])
