/* wia_tvm.c: a compiled region as a TVM packed function: check the arguments, convert, run, convert back. */
#include "wia_tvm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* TVM's own, when its runtime is in the process and visible to us. */
__attribute__((weak)) void TVMAPISetLastError(const char *text);

/* TVM fills this variable when it loads a library that has it, however the runtime itself was loaded. Code that
 * TVM generates has a weak definition of the same name. */
extern __attribute__((visibility("default"))) void (*__TVMAPISetLastError)(const char *text);
__attribute__((weak, visibility("default"))) void (*__TVMAPISetLastError)(const char *text) = NULL;

#ifdef __cplusplus
}
#endif

static int report(const char *text)
{
    if (__TVMAPISetLastError != NULL)
        __TVMAPISetLastError(text);
    else if (TVMAPISetLastError != NULL)
        TVMAPISetLastError(text);
    return -1;
}

/* Tell TVM "run: region "name": <detail>: <text of code>". */
__attribute__((format(printf, 4, 5))) static int refuse(wia_thread_t *thread, const char *region, int code,
                                                        const char *format, ...)
{
    size_t used = (size_t)snprintf(thread->error, sizeof thread->error, "run: region \"%.200s\": ", region);
    va_list arguments;

    va_start(arguments, format);
    used += (size_t)vsnprintf(thread->error + used, sizeof thread->error - used, format, arguments);
    va_end(arguments);
    if (used < sizeof thread->error)
        snprintf(thread->error + used, sizeof thread->error - used, ": %s", wia_error_text(code));
    return report(thread->error);
}

/* "float32 (1, 3, 8, 8)" */
static void describe(char *text, size_t size, const char *dtype, uint32_t rank, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, size, "%s (", dtype);
    uint32_t i;

    for (i = 0u; i < rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i == 0u ? "" : ", ", (long long)shape[i]);
    if (used < size)
        snprintf(text + used, size - used, ")");
}

static bool dtype_ok(const wia_port_t *port, const dl_tensor_t *tensor)
{
    if (tensor->dtype_lanes != 1u)
        return false;
    if (port->host_dtype == WIA_DTYPE_INT8)
        return tensor->dtype_code == DL_INT && tensor->dtype_bits == 8u;
    return tensor->dtype_code == DL_FLOAT && tensor->dtype_bits == 32u;
}

static bool shape_ok(const wia_port_t *port, const dl_tensor_t *tensor)
{
    uint32_t i;

    if (tensor->ndim < 0 || (uint32_t)tensor->ndim != port->host_rank)
        return false;
    for (i = 0u; i < port->host_rank; i++)
        if (tensor->shape[i] != (int64_t)port->host_shape[i])
            return false;
    return true;
}

/* Row-major without gaps; the stride of an axis with one element does not matter. */
static bool is_compact(const dl_tensor_t *tensor)
{
    int64_t stride = 1;
    int32_t i;

    if (tensor->strides == NULL)
        return true;
    for (i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride)
            return false;
        stride *= tensor->shape[i];
    }
    return true;
}

static int refuse_shape(wia_thread_t *thread, const wia_session_t *session, int argument, const dl_tensor_t *tensor)
{
    const wia_port_t *port = &session->ports[argument];
    int64_t shape[WIA_MAX_RANK];
    char wanted[160];
    char found[160];
    char dtype[32];
    uint32_t i;

    for (i = 0u; i < port->host_rank; i++)
        shape[i] = port->host_shape[i];
    describe(wanted, sizeof wanted, port->host_dtype == WIA_DTYPE_INT8 ? "int8" : "float32", port->host_rank, shape);
    snprintf(dtype, sizeof dtype, "%s%u", tensor->dtype_code == DL_INT     ? "int"
                                          : tensor->dtype_code == DL_FLOAT ? "float"
                                                                           : "type",
             tensor->dtype_bits);
    describe(found, sizeof found, dtype, tensor->ndim > 0 ? (uint32_t)tensor->ndim : 0u, tensor->shape);
    return refuse(thread, session->wia.summary.name, WIA_E_SHAPE, "argument %d \"%.60s\" is %s, expected %s", argument,
                  port->name, found, wanted);
}

/* The host tensor of an argument that fits its port, or NULL with the error reported. AOT passes tensors without
 * shape and type (an opaque handle); only their data can be used. */
static const dl_tensor_t *check_argument(wia_thread_t *thread, const wia_session_t *session, int argument,
                                         const tvm_value_t *values, const int *type_codes)
{
    const wia_port_t *port = &session->ports[argument];
    const char *region = session->wia.summary.name;
    const dl_tensor_t *tensor = (const dl_tensor_t *)values[argument].handle;

    if ((type_codes[argument] != TVM_TENSOR && type_codes[argument] != TVM_NDARRAY) || tensor == NULL) {
        refuse(thread, region, WIA_E_BINDING, "argument %d \"%.60s\" has type code %d, expected a tensor", argument,
               port->name, type_codes[argument]);
        return NULL;
    }
    if (tensor->dtype_code != DL_OPAQUE) {
        if (!dtype_ok(port, tensor) || !shape_ok(port, tensor)) {
            refuse_shape(thread, session, argument, tensor);
            return NULL;
        }
        if (!is_compact(tensor)) {
            refuse(thread, region, WIA_E_SHAPE, "argument %d \"%.60s\" is a view with gaps, expected compact rows",
                   argument, port->name);
            return NULL;
        }
        if (tensor->device_type != DL_CPU && tensor->device_type != DL_CUDA_HOST) {
            refuse(thread, region, WIA_E_BINDING, "argument %d \"%.60s\" is on device type %d, expected the CPU",
                   argument, port->name, (int)tensor->device_type);
            return NULL;
        }
    }
    if (tensor->data == NULL) {
        refuse(thread, region, WIA_E_BINDING, "argument %d \"%.60s\" has no data", argument, port->name);
        return NULL;
    }
    return tensor;
}

static uint8_t *data_of(const dl_tensor_t *tensor)
{
    return (uint8_t *)tensor->data + tensor->byte_offset;
}

/* All counters are 64-bit numbers. */
static void add_counters(wia_sim_counters_t *sum, const wia_sim_counters_t *more)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)more;
    size_t i;

    for (i = 0u; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void count_run(wia_session_t *session)
{
    wia_sim_stats_t stats;
    uint32_t i;

    wia_sim_stats(session->machine->device.sim, &stats);
    add_counters(&session->total, &stats.total);
    for (i = 0u; i < session->wia.summary.layers; i++)
        add_counters(&session->layers[i], &session->run[i]);
    session->runs++;
}

static int run(wia_session_t *session)
{
    wia_tensors_t tensors;
    int code;

    memset(&tensors, 0, sizeof tensors);
    tensors.inputs = session->tensors;
    tensors.input_count = session->wia.summary.inputs;
    tensors.outputs = session->tensors + session->wia.summary.inputs;
    tensors.output_count = session->wia.summary.outputs;
    tensors.scratch = session->scratch;
    session->machine->device.spans = session->spans;
    session->machine->device.cache = session->cache;
    session->machine->device.total = &session->run_total;
    session->machine->device.cache_bytes = session->cache_bytes;
    session->machine->device.layers = session->run;
    session->machine->device.span_count = session->wia.summary.layers;
    code = wia_run(&session->wia, &tensors);
    if (code == WIA_OK)
        count_run(session);
    return code;
}

/* The region's name for messages about an image that could not be loaded; "?" when there is none to trust. */
static int refuse_image(wia_thread_t *thread, int code, const wia_fault_t *fault)
{
    if (code == WIA_E_TARGET && fault->where != 0u)
        return refuse(thread, "?", code, "%s is %u, the device has %u", wia_target_field_name(fault->where),
                      fault->found, fault->expected);
    return refuse(thread, "?", code, "image refused at byte %u (found %u, expected %u)", fault->where, fault->found,
                  fault->expected);
}

static int call(wia_thread_t *thread, wia_session_t *session, const tvm_value_t *values, const int *type_codes,
                int num_args)
{
    const char *region = session->wia.summary.name;
    int inputs = (int)session->wia.summary.inputs;
    int ports = inputs + (int)session->wia.summary.outputs;
    const dl_tensor_t *tensors[WIA_MAX_PORTS];
    int code;
    int i;

    if (num_args < ports || values == NULL || type_codes == NULL)
        return refuse(thread, region, WIA_E_SHAPE, "%d arguments, expected %d inputs and %d outputs", num_args, inputs,
                      ports - inputs);
    for (i = 0; i < ports; i++) {
        tensors[i] = check_argument(thread, session, i, values, type_codes);
        if (tensors[i] == NULL)
            return -1;
    }
    for (i = 0; i < inputs; i++)
        wia_tvm_to_device(&session->ports[i], data_of(tensors[i]), (int8_t *)session->tensors[i].data);
    code = run(session);
    if (code != WIA_OK)
        return refuse(thread, region, code, "run failed at program byte %u with code %d", session->wia.fault.where,
                      (int)session->wia.fault.found);
    for (i = inputs; i < ports; i++)
        wia_tvm_to_host(&session->ports[i], (const int8_t *)session->tensors[i].data, data_of(tensors[i]));
    return 0;
}

int wia_tvm_call(const void *image, size_t image_bytes, const void *args, const int *type_codes, int num_args)
{
    wia_thread_t *thread = wia_tvm_thread();
    wia_fault_t fault = {0u, 0u, 0u};
    wia_session_t *session;
    int code = WIA_OK;

    if (thread == NULL)
        return report("run: no state for this thread: out of memory, or the library is being unloaded");
    session = wia_tvm_session(thread, image, image_bytes, &code, &fault);
    if (session == NULL)
        return refuse_image(thread, code, &fault);
    return call(thread, session, (const tvm_value_t *)args, type_codes, num_args);
}
