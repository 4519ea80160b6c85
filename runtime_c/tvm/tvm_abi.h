/* tvm_abi.h: the part of TVM's C ABI (0.8 to 0.19) and of DLPack that the glue uses, in our own words. */
#ifndef WIA_TVM_ABI_H
#define WIA_TVM_ABI_H

#include <stdint.h>

/* TVMValue: 8 bytes of whatever the type code says. */
typedef union tvm_value {
    int64_t integer;
    double number;
    void *handle;
    const char *string;
} tvm_value_t;

enum {
    TVM_OPAQUE_HANDLE = 3,
    TVM_NULL = 4,
    TVM_TENSOR = 7,
    TVM_STRING = 11,
    TVM_NDARRAY = 13 /* its handle points to the tensor, too */
};

enum { DL_CPU = 1, DL_CUDA_HOST = 3 };

enum { DL_INT = 0, DL_FLOAT = 2, DL_OPAQUE = 3 };

/* DLTensor. */
typedef struct dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t dtype_code;
    uint8_t dtype_bits;
    uint16_t dtype_lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: compact, row-major */
    uint64_t byte_offset;
} dl_tensor_t;

#endif
