/* A libcuda.so.1 without a GPU, for scripts/cuda-check: one device of compute capability 9.0 whose
   memory is the host's and whose kernels do nothing. It shows which calls a program makes, which
   code it would run and how much memory it takes, and it fails on request. It computes nothing:
   whatever is read from it is 0, and no result of a program that runs on it means anything.

   Environment:
     FAKE_CUDA_MEMORY   bytes of the device; an allocation beyond them is CUDA_ERROR_OUT_OF_MEMORY
     FAKE_CUDA_LOSE_AT  the launch from which on every call fails with FAKE_CUDA_ERROR
     FAKE_CUDA_ERROR    700 (illegal address) unless given; 214 is an uncorrectable ECC error
     FAKE_CUDA_CODE     a directory that receives the PTX of every module
     FAKE_CUDA_LAUNCHES a file that receives a line for every launch: kernel, blocks, threads
     FAKE_CUDA_REPORT   a file that receives a line of JSON when the process ends */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, GRANULE = 512 };
typedef int Result;
typedef uint64_t Pointer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long modules, launches, uploads, downloads;
static size_t in_use, peak;
/* Sticky: a real context does not recover from it either. */
static Result failure;

static size_t number(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

static size_t memory(void) { return number("FAKE_CUDA_MEMORY", (size_t)80 << 30); }

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("FAKE_CUDA_REPORT");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file,
          "{\"process\": %d, \"modules\": %lu, \"launches\": %lu, \"uploads\": %lu, "
          "\"downloads\": %lu, \"peak_bytes\": %zu}\n",
          (int)getpid(), modules, launches, uploads, downloads, peak);
  fclose(file);
}

/* Devices. */

Result cuInit(unsigned flags) { return SUCCESS; }
Result cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
Result cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
Result cuDeviceGet(int *device, int i) { return i ? INVALID_DEVICE : (*device = 0, SUCCESS); }
Result cuDeviceGetName(char *name, int size, int device) {
  return snprintf(name, size, "no GPU"), SUCCESS;
}
Result cuDeviceGetPCIBusId(char *id, int size, int device) {
  return snprintf(id, size, "0000:01:00.0"), SUCCESS;
}
Result cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = memory(), SUCCESS; }
Result cuDeviceGetUuid(char *id, int device) { return memset(id, 1, 16), SUCCESS; }
Result cuDeviceGetUuid_v2(char *id, int device) { return memset(id, 1, 16), SUCCESS; }
Result cuDeviceGetLuid(char *id, unsigned *mask, int device) {
  return memset(id, 1, 8), *mask = 1, SUCCESS;
}

/* Those of an H100, by the numbers of CUdevice_attribute. */
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break; /* threads in a block, its x and y */
    case 4: *value = 64; break;                   /* its z */
    case 5: *value = 2147483647; break;           /* blocks in x */
    case 6: case 7: *value = 65535; break;        /* y and z */
    case 8: *value = 49152; break;                /* shared memory of a block */
    case 10: *value = 32; break;                  /* warp */
    case 16: *value = 132; break;                 /* multiprocessors */
    case 38: *value = 50 << 20; break;            /* L2 */
    case 39: *value = 2048; break;                /* threads of a multiprocessor */
    case 75: *value = 9; break;                   /* compute capability */
    case 76: *value = 0; break;
    case 97: *value = 232448; break;              /* shared memory of a block, on request */
    default: *value = 1;
  }
  return SUCCESS;
}

/* Contexts, streams, events. */

static int context;
static __thread void *current;
Result cuDevicePrimaryCtxRetain(void **made, int device) { return *made = &context, SUCCESS; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
Result cuCtxSetCurrent(void *given) { return current = given, SUCCESS; }
Result cuCtxGetCurrent(void **found) { return *found = current, SUCCESS; }
Result cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
Result cuCtxSynchronize(void) { return failure; }
Result cuCtxGetStreamPriorityRange(int *least, int *most) { return *least = 0, *most = -5, SUCCESS; }

static Result make(void **made) { return *made = malloc(8), failure; }
static Result drop(void *made) { return free(made), SUCCESS; }
Result cuStreamCreate(void **stream, unsigned flags) { return make(stream); }
Result cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return make(stream); }
Result cuStreamDestroy_v2(void *stream) { return drop(stream); }
Result cuStreamSynchronize(void *stream) { return failure; }
Result cuStreamQuery(void *stream) { return failure; }
Result cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return failure; }
Result cuEventCreate(void **event, unsigned flags) { return make(event); }
Result cuEventDestroy_v2(void *event) { return drop(event); }
Result cuEventRecord(void *event, void *stream) { return failure; }
Result cuEventSynchronize(void *event) { return failure; }
Result cuEventQuery(void *event) { return failure; }
Result cuEventElapsedTime(float *ms, void *from, void *to) { return *ms = 0.1f, failure; }
Result cuEventElapsedTime_v2(float *ms, void *from, void *to) { return *ms = 0.1f, failure; }
Result cuLaunchHostFunc(void *stream, void (*call)(void *), void *data) { return call(data), failure; }

/* Memory. The size of an allocation lies in front of it. */

static void *allocate(size_t bytes) {
  bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE + GRANULE;
  char *start = aligned_alloc(GRANULE, bytes);
  if (!start) return NULL;
  *(size_t *)start = bytes;
  return start + GRANULE;
}

static size_t release(void *given) {
  size_t bytes = *(size_t *)((char *)given - GRANULE);
  return free((char *)given - GRANULE), bytes;
}

Result cuMemAlloc_v2(Pointer *made, size_t bytes) {
  if (failure) return failure;
  pthread_mutex_lock(&lock);
  size_t whole = (bytes + GRANULE - 1) / GRANULE * GRANULE + GRANULE;
  void *got = in_use + whole <= memory() ? allocate(bytes) : NULL;
  if (got) {
    in_use += whole;
    if (in_use > peak) peak = in_use;
  }
  pthread_mutex_unlock(&lock);
  return *made = (Pointer)got, got ? SUCCESS : OUT_OF_MEMORY;
}
Result cuMemFree_v2(Pointer given) {
  pthread_mutex_lock(&lock);
  in_use -= release((void *)given);
  pthread_mutex_unlock(&lock);
  return failure;
}
Result cuMemAllocAsync(Pointer *made, size_t bytes, void *stream) { return cuMemAlloc_v2(made, bytes); }
Result cuMemFreeAsync(Pointer given, void *stream) { return cuMemFree_v2(given); }
Result cuMemAllocHost_v2(void **made, size_t bytes) { return *made = allocate(bytes), SUCCESS; }
Result cuMemFreeHost(void *given) { return release(given), SUCCESS; }
Result cuMemGetInfo_v2(size_t *left, size_t *total) {
  return *total = memory(), *left = memory() - in_use, SUCCESS;
}

/* Copies. */

/* The program asks whether a device computes right before it uses it: 3 (1 + 2 + 4), and sin, exp
   and log of four numbers. Everything else is 0. */
static void answer(void *to, size_t bytes) {
  static const float at[4] = {0.3f, 0.7f, 1.5f, 2.5f};
  static int question;
  float answers[4] = {21.0f};
  memset(to, 0, bytes);
  if (bytes != (question == 0 ? 4 : 16) || question > 3) return;
  for (int i = 0; question > 0 && i < 4; i++)
    answers[i] = question == 1 ? sinf(at[i]) : question == 2 ? expf(at[i]) : logf(at[i]);
  memcpy(to, answers, bytes);
  question++;
}

static Result copy(void *to, const void *from, size_t bytes) {
  if (!failure) memcpy(to, from, bytes);
  return failure;
}
Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, void *stream) {
  return uploads++, copy((void *)to, from, bytes);
}
Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
  return cuMemcpyHtoDAsync_v2(to, from, bytes, NULL);
}
Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, void *stream) {
  return downloads++, answer(to, bytes), failure;
}
Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, NULL);
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, void *stream) {
  return copy((void *)to, (void *)from, bytes);
}
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, void *stream) {
  if (!failure) memset((void *)to, value, bytes);
  return failure;
}

/* One side of CUDA_MEMCPY2D; kind 1 is the host. */
typedef struct {
  size_t x, y;
  int kind;
  void *host;
  Pointer device;
  void *array;
  size_t pitch;
} Side;
typedef struct {
  Side from, to;
  size_t width, height;
} Rectangle;

static char *corner(const Side *side) {
  char *start = side->kind == 1 ? side->host : (char *)side->device;
  return start + side->y * side->pitch + side->x;
}
Result cuMemcpy2DAsync_v2(const Rectangle *r, void *stream) {
  char *to = corner(&r->to), *from = corner(&r->from);
  if (r->to.kind == 1) return downloads++, answer(to, r->width * r->height), failure;
  uploads += r->from.kind == 1;
  for (size_t row = 0; !failure && row < r->height; row++)
    memcpy(to + row * r->to.pitch, from + row * r->from.pitch, r->width);
  return failure;
}

/* Kernels. */

Result cuModuleLoadData(void **made, const void *image) {
  const char *directory = getenv("FAKE_CUDA_CODE");
  pthread_mutex_lock(&lock);
  unsigned long which = modules++;
  pthread_mutex_unlock(&lock);
  if (directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d-%05lu.ptx", directory, (int)getpid(), which);
    FILE *file = fopen(path, "w");
    if (file) fputs(image, file), fclose(file);
  }
  return make(made);
}
Result cuModuleLoadDataEx(void **made, const void *image, unsigned n, void *names, void *values) {
  return cuModuleLoadData(made, image);
}
Result cuModuleGetFunction(void **made, void *module, const char *name) {
  return *made = strdup(name), failure;
}
Result cuModuleUnload(void *module) { return drop(module); }
Result cuFuncSetAttribute(void *function, int attribute, int value) { return failure; }
Result cuFuncGetAttribute(int *value, int attribute, void *function) { return *value = 1, failure; }

static Result launch(const char *name, const unsigned shape[6]) {
  static FILE *file;
  const char *path = getenv("FAKE_CUDA_LAUNCHES");
  pthread_mutex_lock(&lock);
  if (++launches >= number("FAKE_CUDA_LOSE_AT", SIZE_MAX)) failure = number("FAKE_CUDA_ERROR", 700);
  if (path && !file) file = fopen(path, "a");
  if (file)
    fprintf(file, "%s %ux%ux%u %ux%ux%u\n", name, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5]);
  pthread_mutex_unlock(&lock);
  return failure;
}
Result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, void *stream, void **arguments, void **more) {
  return launch(function, (unsigned[6]){gx, gy, gz, bx, by, bz});
}
/* The first six numbers of CUlaunchConfig are those of the grid and the block. */
Result cuLaunchKernelEx(const void *shape, void *function, void **arguments, void **more) {
  return launch(function, shape);
}

/* Errors. */

Result cuGetErrorName(Result error, const char **name) {
  *name = error == OUT_OF_MEMORY    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700            ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 214            ? "CUDA_ERROR_ECC_UNCORRECTABLE"
          : error == INVALID_DEVICE ? "CUDA_ERROR_INVALID_DEVICE"
                                    : "CUDA_ERROR_UNKNOWN";
  return SUCCESS;
}
Result cuGetErrorString(Result error, const char **text) {
  return *text = error == OUT_OF_MEMORY ? "out of memory" : "asked for by FAKE_CUDA_ERROR", SUCCESS;
}
