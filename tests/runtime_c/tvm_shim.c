/* tvm_shim.c: makes the hidden entry point reachable for ctypes and plays TVM's error setter. */
#include <stdio.h>

#include "../../runtime_c/tvm/wia_tvm.h"

#define EXPORT __attribute__((visibility("default")))

static __thread char last_error[1024];

EXPORT void TVMAPISetLastError(const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
}

EXPORT const char *shim_error(void)
{
    return last_error;
}

EXPORT int shim_call(const void *image, size_t bytes, const void *args, const int *codes, int count)
{
    last_error[0] = '\0';
    return wia_tvm_call(image, bytes, args, codes, count);
}
