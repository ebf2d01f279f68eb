/* A stand-in for libcuda.so.1 on machines without a GPU: what a process start calls, taking the time that an H200's
   driver takes without Python's lock. Memory is the host's; launches do nothing, so nothing is checked. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int status;
typedef uint64_t handle;
enum { SUCCESS = 0, NOT_FOUND = 500, START_MS = 100, CONTEXT_MS = 130, POOL_MS = 11 };
#define NOTHING(name, ...) status name(__VA_ARGS__) { return SUCCESS; }
#define GIVES(name, type, value, ...) status name(type *given, ##__VA_ARGS__) { *given = value; return SUCCESS; }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_started, has_context, has_pool;

static void once(int *done, int milliseconds)
{
    pthread_mutex_lock(&lock);
    if (!*done)
        usleep(1000 * milliseconds);
    *done = 1;
    pthread_mutex_unlock(&lock);
}

status cuInit(unsigned flags) { once(&is_started, START_MS); return SUCCESS; }
GIVES(cuDriverGetVersion, int, 13050)
GIVES(cuDeviceGetCount, int, 1)
status cuDeviceGet(int *device, int number) { *device = number; return SUCCESS; }
status cuDeviceGetName(char *name, int size, int device) { strncpy(name, "stand-in", size); return SUCCESS; }
status cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 1, 16); return SUCCESS; }
GIVES(cuDeviceTotalMem, size_t, (size_t)1 << 37, int device)
status cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132; /* compute capability 9.0 */
    return SUCCESS;
}

status cuDevicePrimaryCtxRetain(handle *context, int device)
{
    once(&has_context, CONTEXT_MS);
    *context = 1;
    return SUCCESS;
}
NOTHING(cuDevicePrimaryCtxRelease, int device)
NOTHING(cuCtxPushCurrent, handle context)
GIVES(cuCtxPopCurrent, handle, 1)
NOTHING(cuCtxSetCurrent, handle context)
status cuCtxSynchronize(void) { return SUCCESS; }

GIVES(cuStreamCreate, handle, 2, unsigned flags)
NOTHING(cuStreamSynchronize, handle stream)
NOTHING(cuStreamDestroy, handle stream)

GIVES(cuDeviceGetDefaultMemPool, handle, 3, int device)
status cuMemPoolGetAttribute(handle pool, int attribute, uint64_t *value) { *value = 1; return SUCCESS; }
NOTHING(cuMemPoolSetAttribute, handle pool, int attribute, void *value)
GIVES(cuMemAlloc, handle, (handle)malloc(size), size_t size)
status cuMemAllocAsync(handle *address, size_t size, handle stream)
{
    once(&has_pool, POOL_MS);
    return cuMemAlloc(address, size);
}
status cuMemFree(handle address) { free((void *)address); return SUCCESS; }
status cuMemFreeAsync(handle address, handle stream) { return cuMemFree(address); }
status cuMemHostAlloc(void **address, size_t size, unsigned flags) { *address = malloc(size); return SUCCESS; }
status cuMemFreeHost(void *address) { free(address); return SUCCESS; }
status cuMemcpyHtoD(handle to, const void *from, size_t size) { memcpy((void *)to, from, size); return SUCCESS; }
status cuMemcpyDtoH(void *to, handle from, size_t size) { memcpy(to, (void *)from, size); return SUCCESS; }
status cuMemcpyHtoDAsync(handle to, const void *from, size_t size, handle s) { return cuMemcpyHtoD(to, from, size); }
status cuMemcpyDtoHAsync(void *to, handle from, size_t size, handle s) { return cuMemcpyDtoH(to, from, size); }
status cuMemsetD8Async(handle to, int value, size_t n, handle s) { memset((void *)to, value, n); return SUCCESS; }
NOTHING(cuMemsetD32Async, handle to, unsigned value, size_t count, handle stream)

GIVES(cuEventCreate, handle, 4, unsigned flags)
NOTHING(cuEventRecord, handle event, handle stream)
NOTHING(cuEventSynchronize, handle event)
NOTHING(cuEventQuery, handle event)
NOTHING(cuEventDestroy, handle event)
NOTHING(cuStreamWaitEvent, handle stream, handle event, unsigned flags)

GIVES(cuModuleLoadData, handle, 5, const void *image)
GIVES(cuModuleGetFunction, handle, 6, handle module, const char *name)
NOTHING(cuModuleUnload, handle module)
NOTHING(cuLaunchKernel, handle function)
NOTHING(cuLaunchKernelEx, const void *config, handle function, void **arguments, void **extra)

/* NVRTC asks for this one. */
status cuGetExportTable(const void **table, const void *id) { *table = NULL; return NOT_FOUND; }

status cuGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *found)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    *function = library ? dlsym(library, name) : NULL;
    if (found)
        *found = *function == NULL;
    return *function ? SUCCESS : NOT_FOUND;
}
status cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found)
{
    return cuGetProcAddress(name, function, version, flags, found);
}
