/* test_tvm_threads.c LIBGLUE.so COPY.wia: life and death of the glue's threads, for the address sanitizer. */
#include <dlfcn.h>
#include <pthread.h>

#include "../../runtime_c/tvm/tvm_abi.h"
#include "harness.h"

typedef int (*call_t)(const void *image, size_t bytes, const void *args, const int *codes, int count);

static call_t call;
static file_t image;
static pthread_barrier_t called;
static pthread_barrier_t unloaded;

static void run_copy(void)
{
    int8_t x[64];
    int8_t y[64] = {0};
    int64_t shape[4] = {1, 4, 4, 4};
    dl_tensor_t tensors[2] = {{x, DL_CPU, 0, 4, DL_INT, 8u, 1u, shape, NULL, 0u},
                              {y, DL_CPU, 0, 4, DL_INT, 8u, 1u, shape, NULL, 0u}};
    tvm_value_t values[2];
    int codes[2] = {TVM_TENSOR, TVM_NDARRAY};
    int i;

    for (i = 0; i < 64; i++)
        x[i] = (int8_t)(i - 32);
    values[0].handle = &tensors[0];
    values[1].handle = &tensors[1];
    for (i = 0; i < 5; i++)
        CHECK(call(image.bytes, image.size, values, codes, 2) == 0);
    CHECK(memcmp(x, y, sizeof x) == 0);
}

static void *short_life(void *unused)
{
    run_copy();
    return unused;
}

/* Ends after the library is gone, with a state that only unloading can free. */
static void *long_life(void *unused)
{
    run_copy();
    pthread_barrier_wait(&called);
    pthread_barrier_wait(&unloaded);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[8];
    pthread_t survivor;
    void *library;
    int round;
    int i;

    if (argc != 3)
        return 2;
    image = read_file(argv[2]);
    pthread_barrier_init(&called, NULL, 2u);
    pthread_barrier_init(&unloaded, NULL, 2u);
    for (round = 0; round < 3; round++) {
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            printf("%s\n", dlerror());
            return 2;
        }
        *(void **)&call = dlsym(library, "shim_call");
        CHECK(call != NULL);
        run_copy();
        for (i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], NULL, short_life, NULL) == 0);
        CHECK(pthread_create(&survivor, NULL, long_life, NULL) == 0);
        for (i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_wait(&called);
        if (round < 2) /* the last round ends the process with the library loaded */
            CHECK(dlclose(library) == 0);
        pthread_barrier_wait(&unloaded);
        pthread_join(survivor, NULL);
    }
    free(image.bytes);
    return failures != 0;
}
