/* convert.c: host tensors <-> device tensors. host array = device array .transpose(perm) .reshape(host_shape);
 * float32 is computed as TVM's qnn.quantize and qnn.dequantize do. */
#include <string.h>

#include "internal.h"

/* The axes of the transposed device array in host order, with their distances in the device array. */
typedef struct {
    size_t count[4];
    size_t stride[4];
} walk_t;

static walk_t walk_of(const wia_port_t *port)
{
    size_t device_stride[4];
    walk_t walk;
    int i;

    device_stride[3] = 1u;
    for (i = 2; i >= 0; i--)
        device_stride[i] = device_stride[i + 1] * port->device_shape[i + 1];
    for (i = 0; i < 4; i++) {
        walk.count[i] = port->device_shape[port->perm[i]];
        walk.stride[i] = device_stride[port->perm[i]];
    }
    return walk;
}

static float scale_of(const wia_port_t *port)
{
    double scale;

    memcpy(&scale, &port->scale_bits, sizeof scale);
    return (float)scale;
}

/* clamp(round(x * (1 / scale)) + zero_point): reciprocal and quotient in float32, halves away from zero, NaN -> 127.
 * Beyond +-512 the result is a clamp whatever the zero point; below, adding a half is exact in binary64. */
static int8_t quantize(float x, float reciprocal, int32_t zero_point)
{
    float quotient = x * reciprocal;
    int32_t q;

    if (quotient != quotient)
        return 127;
    if (quotient > 512.0f)
        quotient = 512.0f;
    if (quotient < -512.0f)
        quotient = -512.0f;
    q = (int32_t)(quotient < 0.0f ? (double)quotient - 0.5 : (double)quotient + 0.5) + zero_point;
    return (int8_t)(q < -128 ? -128 : q > 127 ? 127 : q);
}

static void row_to_device(const wia_port_t *port, float scale, const uint8_t *host, int8_t *device, size_t count,
                          size_t stride)
{
    float reciprocal = 1.0f / scale;
    size_t i;

    if (port->host_dtype == WIA_DTYPE_INT8) {
        for (i = 0u; i < count; i++)
            device[i * stride] = (int8_t)host[i];
        return;
    }
    for (i = 0u; i < count; i++) {
        float x;

        memcpy(&x, host + 4u * i, sizeof x);
        device[i * stride] = quantize(x, reciprocal, port->zero_point);
    }
}

static void row_to_host(const wia_port_t *port, float scale, const int8_t *device, uint8_t *host, size_t count,
                        size_t stride)
{
    size_t i;

    if (port->host_dtype == WIA_DTYPE_INT8) {
        for (i = 0u; i < count; i++)
            host[i] = (uint8_t)device[i * stride];
        return;
    }
    for (i = 0u; i < count; i++) {
        float x = (float)(device[i * stride] - port->zero_point) * scale;

        memcpy(host + 4u * i, &x, sizeof x);
    }
}

void wia_tvm_to_device(const wia_port_t *port, const uint8_t *host, int8_t *device)
{
    size_t element_bytes = port->host_dtype == WIA_DTYPE_INT8 ? 1u : 4u;
    walk_t walk = walk_of(port);
    float scale = scale_of(port);
    size_t i, j, k;

    for (i = 0u; i < walk.count[0]; i++)
        for (j = 0u; j < walk.count[1]; j++)
            for (k = 0u; k < walk.count[2]; k++) {
                row_to_device(port, scale, host,
                              device + i * walk.stride[0] + j * walk.stride[1] + k * walk.stride[2], walk.count[3],
                              walk.stride[3]);
                host += element_bytes * walk.count[3];
            }
}

void wia_tvm_to_host(const wia_port_t *port, const int8_t *device, uint8_t *host)
{
    size_t element_bytes = port->host_dtype == WIA_DTYPE_INT8 ? 1u : 4u;
    walk_t walk = walk_of(port);
    float scale = scale_of(port);
    size_t i, j, k;

    for (i = 0u; i < walk.count[0]; i++)
        for (j = 0u; j < walk.count[1]; j++)
            for (k = 0u; k < walk.count[2]; k++) {
                row_to_host(port, scale, device + i * walk.stride[0] + j * walk.stride[1] + k * walk.stride[2],
                            host, walk.count[3], walk.stride[3]);
                host += element_bytes * walk.count[3];
            }
}
