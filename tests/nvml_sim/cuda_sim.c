/*
 * A libcuda.so.1 without a GPU: the driver's interface as far as roles/nvidia_driver/files/gpu_proof.py and the stand-in
 * for torch call it. Cards and faults come from the description of nvml_sim.c (`rc.cuInit = 802`, `hang.cuCtxSynchronize
 * = 1`); `cuda.wrong = GPU` makes one card return a wrong number.
 *
 * A module is PTX and is really carried out, one thread after another: the few instructions below, on 64-bit registers.
 * On a host that is simulated as a whole cuInit wants the node of nvidia_uvm, as the real one does (999 without it).
 */
#include "nvml_sim.c"

#include <stdbool.h>
#include <sys/stat.h>

enum { CUDA_INVALID_VALUE = 1, CUDA_NO_DEVICE = 100, CUDA_INVALID_PTX = 218, CUDA_NOT_FOUND = 500, CUDA_UNKNOWN = 999 };
enum { REGISTERS = 64 };

static int card = -1; /* of the current context; one at a time */

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags) {
    struct stat node;
    const char *path = description();
    (void)flags;
    FAULT(-1);
    if (!path) return CUDA_NO_DEVICE;
    if (!strcmp(path, "/etc/nvml-sim") && (stat("/dev/nvidia-uvm", &node) || !S_ISCHR(node.st_mode))) return CUDA_UNKNOWN;
    return gpu_count() ? 0 : CUDA_NO_DEVICE;
}

EXPORT int cuGetErrorName(int code, const char **out) {
    static const struct { int code; const char *name; } names[] = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {218, "CUDA_ERROR_INVALID_PTX"}, {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {500, "CUDA_ERROR_NOT_FOUND"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {999, "CUDA_ERROR_UNKNOWN"}};
    *out = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) { *out = names[i].name; return 0; }
    return CUDA_INVALID_VALUE;
}

EXPORT int cuDeviceGetCount(int *out) { FAULT(-1); *out = (int)gpu_count(); return 0; }
EXPORT int cuDriverGetVersion(int *out) { FAULT(-1); return nvmlSystemGetCudaDriverVersion_v2(out) ? CUDA_UNKNOWN : 0; }
EXPORT int cuDeviceGet(int *out, int index) { FAULT(index); *out = index; return 0; }
EXPORT int cuCtxCreate_v2(void **out, unsigned flags, int device) {
    (void)flags;
    FAULT(device);
    card = device;
    *out = (void *)(uintptr_t)(device + 1);
    return 0;
}
EXPORT int cuCtxDestroy_v2(void *context) { (void)context; FAULT(card); card = -1; return 0; }
EXPORT int cuCtxSynchronize(void) { FAULT(card); return 0; }
EXPORT int cuMemAlloc_v2(uint64_t *out, size_t size) { FAULT(card); *out = (uint64_t)(uintptr_t)calloc(1, size); return 0; }
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { FAULT(card); memcpy((void *)(uintptr_t)to, from, size); return 0; }
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    unsigned long long wrong;
    FAULT(card);
    memcpy(to, (void *)(uintptr_t)from, size);
    if (number("cuda.wrong", &wrong) && wrong == (unsigned long long)card) *(char *)to ^= 1;
    return 0;
}

EXPORT int cuModuleLoadData(void **out, const char *image) {
    FAULT(card);
    if (!strstr(image, ".version") || !strstr(image, ".target")) return CUDA_INVALID_PTX;
    *out = strdup(image);
    return 0;
}

EXPORT int cuModuleGetFunction(void **out, void *module, const char *name) {
    char entry[128];
    char *found;
    FAULT(card);
    snprintf(entry, sizeof entry, ".entry %s(", name);
    found = strstr(module, entry);
    if (!found || !(*out = strchr(found, '{'))) return CUDA_NOT_FOUND;
    return 0;
}

/* ---- one thread ---------------------------------------------------------------------------------------------- */

typedef struct { uint64_t small[REGISTERS], wide[REGISTERS], parameter; unsigned block, width, thread; } state_t;

static uint64_t *place(state_t *s, const char *word) {
    if (!strncmp(word, "%rd", 3)) return &s->wide[atoi(word + 3) % REGISTERS];
    return &s->small[atoi(word + 2) % REGISTERS];
}

static uint64_t value(state_t *s, const char *word) {
    if (!strcmp(word, "%ctaid.x")) return s->block;
    if (!strcmp(word, "%ntid.x")) return s->width;
    if (!strcmp(word, "%tid.x")) return s->thread;
    return *word == '%' ? *place(s, word) : strtoull(word, NULL, 0);
}

static bool step(state_t *s, const char *op, char w[4][32]) {
    uint64_t *to = *w[0] == '%' ? place(s, w[0]) : NULL;
    if (!strcmp(op, "ld.param.u64")) *to = s->parameter;
    else if (!strcmp(op, "cvta.to.global.u64") || !strcmp(op, "mov.u32")) *to = value(s, w[1]);
    else if (!strcmp(op, "mad.lo.u32")) *to = (uint32_t)(value(s, w[1]) * value(s, w[2]) + value(s, w[3]));
    else if (!strcmp(op, "mul.wide.u32")) *to = (uint64_t)(uint32_t)value(s, w[1]) * (uint32_t)value(s, w[2]);
    else if (!strcmp(op, "add.u64")) *to = value(s, w[1]) + value(s, w[2]);
    else if (!strcmp(op, "ld.global.u32")) *to = *(uint32_t *)(uintptr_t)value(s, w[1]);
    else if (!strcmp(op, "st.global.u32")) *(uint32_t *)(uintptr_t)value(s, w[0]) = (uint32_t)value(s, w[1]);
    else return false;
    return true;
}

static bool carried_out(state_t *s, const char *body) {
    for (const char *at = body + 1; *at && *at != '}';) {
        char line[160], op[32], w[4][32] = {"", "", "", ""};
        size_t length = strcspn(at, ";");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + 1;
        for (char *c = line; *c; c++) if (strchr("[],\n", *c)) *c = ' ';
        if (sscanf(line, "%31s %31s %31s %31s %31s", op, w[0], w[1], w[2], w[3]) < 1) continue;
        if (!strncmp(op, ".reg", 4)) continue;
        if (!strcmp(op, "ret")) return true;
        if (!step(s, op, w)) return false;
    }
    return false;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **words, void **extra) {
    (void)gy; (void)gz; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    FAULT(card);
    for (unsigned block = 0; block < gx; block++)
        for (unsigned thread = 0; thread < bx; thread++) {
            state_t state = {.parameter = *(uint64_t *)words[0], .block = block, .width = bx, .thread = thread};
            if (!carried_out(&state, function)) return CUDA_INVALID_PTX;
        }
    return 0;
}
