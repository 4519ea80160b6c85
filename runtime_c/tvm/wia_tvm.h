/* wia_tvm.h: compiled regions as TVM packed functions, on the simulator. Hosted C11 and C++.
 *
 * Needs no TVM headers, and no TVM library to link: its functions are looked up when they are there. Every
 * thread has its own simulated device, made at its first call and freed when it ends. */
#ifndef WIA_TVM_H
#define WIA_TVM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Run an image on host tensors: float32 or int8 as its ports say, in and out converted to the device's int8 NHWC.
 *
 * `args` (TVMValue[num_args]) and `type_codes` are those of TVM's packed C ABI: inputs, then outputs, then
 * anything else, which is ignored. `image` is 64-byte aligned, stays where it is and never changes; what was
 * verified once per thread is not verified again. Returns 0, or -1 with TVM's last error set and the outputs
 * untouched. */
int wia_tvm_call(const void *image, size_t image_bytes, const void *args, const int *type_codes, int num_args);

/* Packed functions of the library: no arguments. wia_tvm_stats returns a string, JSON with the counters of all
 * runs of the calling thread (keys as in byoc_accel/sim_result.py); wia_tvm_reset_stats sets them to zero. */
int wia_tvm_stats(void *args, int *type_codes, int num_args, void *ret_value, int *ret_type_code, void *resource);
int wia_tvm_reset_stats(void *args, int *type_codes, int num_args, void *ret_value, int *ret_type_code,
                        void *resource);

#ifdef __cplusplus
}
#endif

#endif
