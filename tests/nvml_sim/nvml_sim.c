/*
 * A libnvidia-ml.so.1 without a GPU: the calls that vllm-doctor and the roles make, answered from a text file.
 *
 * NVML_SIM names the file, without it `nvml-sim` beside the library, or else /etc/nvml-sim; it is read again on every
 * call, so that a test can change the machine while it runs.
 * One `key = value` a line, `#` starts a comment. Keys are in README.md beside this file. A value that the file does not
 * give is answered with NVML_ERROR_NOT_SUPPORTED, as a real card answers for what it does not have.
 *
 * `rc.FUNCTION[.GPU] = N` returns code N, `hang.FUNCTION[.GPU] = 1` never returns, `crash.FUNCTION[.GPU] = 1` is a
 * segmentation fault inside the library. Types and codes follow the published NVML ABI; nothing of NVIDIA's is included.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, ARGUMENT_VERSION_MISMATCH = 25
};

typedef void *device_t;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct { char legacy_id[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; } pci_t;
typedef struct { unsigned version; unsigned sensor; int celsius; } temperature_t;
typedef union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } value_t;
typedef struct {
    uint32_t field, scope; int64_t timestamp, latency; unsigned type; unsigned rc; value_t value;
} field_t;

/* ---- the description ---------------------------------------------------------------------------------------- */

/* A host that is simulated as a whole has one description; nothing has to be told to each process. A process that was
 * started with a clean environment is told by what lies beside the library. */
static const char *description(void) {
    static char beside[4096];
    const char *path = getenv("NVML_SIM"), *end;
    Dl_info self;
    if (path) return path;
    if (dladdr((void *)description, &self) && (end = strrchr(self.dli_fname, '/'))) {
        snprintf(beside, sizeof beside, "%.*s/nvml-sim", (int)(end - self.dli_fname), self.dli_fname);
        if (!access(beside, R_OK)) return beside;
    }
    return access("/etc/nvml-sim", R_OK) ? NULL : "/etc/nvml-sim";
}

static int lookup(const char *key, char *out, size_t room) {
    const char *path = description();
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[1024];
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        char *name = line, *value, *end;
        while (isspace((unsigned char)*name)) name++;
        if (*name == '#' || !(value = strchr(name, '='))) continue;
        for (end = value; end > name && isspace((unsigned char)end[-1]); end--) {}
        *end = 0;
        if (strcmp(name, key)) continue;
        for (value++; isspace((unsigned char)*value); value++) {}
        for (end = value + strlen(value); end > value && isspace((unsigned char)end[-1]); end--) {}
        *end = 0;
        snprintf(out, room, "%s", value);
        found = 1; /* the last one wins: a test appends to change a value */
    }
    fclose(file);
    return found;
}

static int number(const char *key, unsigned long long *out) {
    char text[64];
    if (!lookup(key, text, sizeof text)) return 0;
    *out = strtoull(text, NULL, 0);
    return 1;
}

static void key_of(device_t device, const char *what, char *key, size_t room) {
    unsigned handle = (unsigned)(uintptr_t)device, gpu = (handle & 0xff) - 1, slice = handle >> 8;
    if (slice) snprintf(key, room, "gpu.%u.mig.%u.%s", gpu, slice - 1, what);
    else snprintf(key, room, "gpu.%u.%s", gpu, what);
}

static int gpu_number(device_t device, const char *what, unsigned long long *out) {
    char key[160];
    key_of(device, what, key, sizeof key);
    return number(key, out);
}

static int gpu_text(device_t device, const char *what, char *out, size_t room) {
    char key[160];
    key_of(device, what, key, sizeof key);
    return lookup(key, out, room) ? SUCCESS : NOT_SUPPORTED;
}

static unsigned gpu_count(void) {
    unsigned n = 0;
    char key[64], text[128];
    for (;; n++) {
        snprintf(key, sizeof key, "gpu.%u.name", n);
        if (!lookup(key, text, sizeof text)) return n;
    }
}

/* ---- faults ------------------------------------------------------------------------------------------------- */

static void misbehave(const char *function, const char *suffix) {
    char key[160];
    unsigned long long on;
    snprintf(key, sizeof key, "crash.%s%s", function, suffix);
    if (number(key, &on) && on) raise(SIGSEGV);
    snprintf(key, sizeof key, "hang.%s%s", function, suffix);
    if (number(key, &on) && on) {
        sigset_t all; /* as deaf as a process in uninterruptible sleep, as far as user space can be */
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        for (;;) pause();
    }
}

static int fault(const char *function, long gpu) {
    char key[160], suffix[24] = "";
    unsigned long long rc;
    misbehave(function, "");
    snprintf(key, sizeof key, "rc.%s", function);
    if (number(key, &rc)) return (int)rc;
    if (gpu < 0) return SUCCESS;
    snprintf(suffix, sizeof suffix, ".%ld", gpu);
    misbehave(function, suffix);
    snprintf(key, sizeof key, "rc.%s.%ld", function, gpu);
    return number(key, &rc) ? (int)rc : SUCCESS;
}

#define GPU_OF(device) ((long)((uintptr_t)(device) & 0xff) - 1)
#define FAULT(gpu) do { int rc_ = fault(__func__, gpu); if (rc_) return rc_; } while (0)

/* ---- the library and the system ----------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) { (void)flags; FAULT(-1); return description() ? SUCCESS : DRIVER_NOT_LOADED; }
int nvmlInit_v2(void) { FAULT(-1); return description() ? SUCCESS : DRIVER_NOT_LOADED; }
int nvmlShutdown(void) { FAULT(-1); return SUCCESS; }

const char *nvmlErrorString(int code) { (void)code; return "simulated error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned room) { FAULT(-1); return lookup("driver", out, room) ? SUCCESS : NOT_SUPPORTED; }
int nvmlSystemGetNVMLVersion(char *out, unsigned room) { FAULT(-1); return lookup("nvml", out, room) ? SUCCESS : NOT_SUPPORTED; }

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    unsigned long long value;
    FAULT(-1);
    if (!number("cuda", &value)) return NOT_SUPPORTED;
    *out = (int)value;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *out) { FAULT(-1); return nvmlSystemGetCudaDriverVersion_v2(out); }

int nvmlDeviceGetCount_v2(unsigned *out) { FAULT(-1); *out = gpu_count(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *out) {
    FAULT((long)index);
    if (index >= gpu_count()) return INVALID_ARGUMENT;
    *out = (device_t)(uintptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *out) {
    char text[128];
    FAULT(-1);
    for (unsigned i = 0; i < gpu_count(); i++) {
        *out = (device_t)(uintptr_t)(i + 1);
        if (gpu_text(*out, "uuid", text, sizeof text) == SUCCESS && !strcmp(text, uuid)) return SUCCESS;
        for (unsigned slice = 0; slice < 16; slice++) {
            *out = (device_t)(uintptr_t)((slice + 1) << 8 | (i + 1));
            if (gpu_text(*out, "uuid", text, sizeof text) == SUCCESS && !strcmp(text, uuid)) return SUCCESS;
        }
    }
    return NOT_FOUND;
}

/* ---- one GPU ------------------------------------------------------------------------------------------------ */

int nvmlDeviceGetIndex(device_t device, unsigned *out) { FAULT(GPU_OF(device)); *out = (unsigned)GPU_OF(device); return SUCCESS; }
int nvmlDeviceGetName(device_t device, char *out, unsigned room) { FAULT(GPU_OF(device)); return gpu_text(device, "name", out, room); }
int nvmlDeviceGetUUID(device_t device, char *out, unsigned room) { FAULT(GPU_OF(device)); return gpu_text(device, "uuid", out, room); }

int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *out) {
    FAULT(GPU_OF(device));
    memset(out, 0, sizeof *out);
    if (gpu_text(device, "pci", out->bus_id, sizeof out->bus_id)) return NOT_SUPPORTED;
    sscanf(out->bus_id, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return SUCCESS;
}

/* With `living = 1` a process that has ended holds nothing any more, as on a real card. */
static int ended(device_t device, unsigned pid) {
    unsigned long long living = 0;
    char path[32];
    snprintf(path, sizeof path, "/proc/%u", pid);
    return gpu_number(device, "living", &living) && living && access(path, F_OK) != 0;
}

static int process_line(device_t device, unsigned n, char *kind, unsigned *pid, char *used) {
    char what[32], text[128];
    snprintf(what, sizeof what, "process.%u", n);
    if (gpu_text(device, what, text, sizeof text)) return 0;
    if (sscanf(text, "%15s %u %31s", kind, pid, used) != 3) *kind = 0;
    return 1;
}

/* Bytes of processes that have ended since the description was written. */
static unsigned long long given_back(device_t device) {
    unsigned long long all = 0;
    char kind[16], used[32];
    unsigned pid;
    for (unsigned n = 0; n < 64 && process_line(device, n, kind, &pid, used); n++)
        if (*kind && used[0] != '-' && ended(device, pid)) all += strtoull(used, NULL, 0);
    return all;
}

static int memory(device_t device, memory_v2 *out) {
    if (!gpu_number(device, "total", &out->total) || !gpu_number(device, "free", &out->free)) return NOT_SUPPORTED;
    out->free += given_back(device);
    if (!gpu_number(device, "reserved", &out->reserved)) out->reserved = 0;
    out->used = out->total - out->free - out->reserved;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t device, memory_v1 *out) {
    memory_v2 all;
    int rc;
    FAULT(GPU_OF(device));
    if ((rc = memory(device, &all))) return rc;
    out->total = all.total;
    out->free = all.free;
    out->used = all.total - all.free;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device_t device, memory_v2 *out) {
    FAULT(GPU_OF(device));
    if (out->version != (sizeof(memory_v2) | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    return memory(device, out);
}

int nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor) {
    char text[16];
    FAULT(GPU_OF(device));
    if (gpu_text(device, "capability", text, sizeof text)) return NOT_SUPPORTED;
    return sscanf(text, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

/* `process.N = KIND PID BYTES`; BYTES `-` is "not available", which the ABI spells as all ones. */
static int processes(device_t device, const char *kind, unsigned *count, process_t *out) {
    unsigned room = out ? *count : 0, found = 0;
    for (unsigned n = 0; n < 64; n++) {
        char is[16], used[32];
        unsigned pid;
        if (!process_line(device, n, is, &pid, used)) break;
        if (strcmp(is, kind) || ended(device, pid)) continue;
        if (found < room) {
            out[found].pid = pid;
            out[found].used = used[0] == '-' ? ~0ULL : strtoull(used, NULL, 0);
            out[found].gpu_instance = out[found].compute_instance = ~0u;
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *n, process_t *out) { FAULT(GPU_OF(d)); return processes(d, "compute", n, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t d, unsigned *n, process_t *out) { FAULT(GPU_OF(d)); return processes(d, "graphics", n, out); }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t d, unsigned *n, process_t *out) { FAULT(GPU_OF(d)); return processes(d, "mps", n, out); }

int nvmlDeviceGetRemappedRows(device_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    char text[64];
    FAULT(GPU_OF(device));
    if (gpu_text(device, "remap", text, sizeof text)) return NOT_SUPPORTED;
    return sscanf(text, "%u %u %u %u", corrected, uncorrected, pending, failed) == 4 ? SUCCESS : NOT_SUPPORTED;
}

/* type 0 is corrected, 1 uncorrected; counter 0 is volatile, 1 aggregate */
int nvmlDeviceGetTotalEccErrors(device_t device, unsigned type, unsigned counter, unsigned long long *out) {
    char what[40];
    FAULT(GPU_OF(device));
    snprintf(what, sizeof what, "ecc.%s.%s", counter ? "aggregate" : "volatile", type ? "uncorrected" : "corrected");
    return gpu_number(device, what, out) ? SUCCESS : NOT_SUPPORTED;
}

static int two(device_t device, const char *what, unsigned *first, unsigned *second) {
    char text[32];
    if (gpu_text(device, what, text, sizeof text)) return NOT_SUPPORTED;
    return sscanf(text, "%u %u", first, second) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetEccMode(device_t device, unsigned *current, unsigned *pending) { FAULT(GPU_OF(device)); return two(device, "ecc_mode", current, pending); }
int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) { FAULT(GPU_OF(device)); return two(device, "mig_mode", current, pending); }

int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *out) { FAULT(GPU_OF(device)); *out = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned index, device_t *out) {
    char text[128];
    FAULT(GPU_OF(device));
    *out = (device_t)(uintptr_t)((index + 1) << 8 | ((uintptr_t)device & 0xff));
    return gpu_text(*out, "uuid", text, sizeof text) ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(device_t device, unsigned *out) { FAULT(GPU_OF(device)); *out = (uintptr_t)device > 0xff; return SUCCESS; }

#define WORD(function, what) \
    int function(device_t device, unsigned *out) { \
        unsigned long long value; \
        FAULT(GPU_OF(device)); \
        if (!gpu_number(device, what, &value)) return NOT_SUPPORTED; \
        *out = (unsigned)value; \
        return SUCCESS; \
    }
WORD(nvmlDeviceGetComputeMode, "compute_mode")
WORD(nvmlDeviceGetPersistenceMode, "persistence")
WORD(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
WORD(nvmlDeviceGetMaxPcieLinkWidth, "pcie.width_max")
WORD(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.gen")
WORD(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.gen_max")

static int event_reasons(device_t device, unsigned long long *out) { return gpu_number(device, "clocks_event_reasons", out) ? SUCCESS : NOT_SUPPORTED; }
int nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *out) { FAULT(GPU_OF(device)); return event_reasons(device, out); }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *out) { FAULT(GPU_OF(device)); return event_reasons(device, out); }

int nvmlDeviceGetVirtualizationMode(device_t device, unsigned *out) {
    unsigned long long value = 0;
    FAULT(GPU_OF(device));
    gpu_number(device, "virtualization", &value);
    *out = (unsigned)value;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureV(device_t device, temperature_t *out) {
    unsigned long long value;
    FAULT(GPU_OF(device));
    if (!gpu_number(device, "temperature", &value)) return NOT_SUPPORTED;
    out->celsius = (int)value;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(device_t device, unsigned sensor, unsigned *out) {
    unsigned long long value;
    (void)sensor;
    FAULT(GPU_OF(device));
    if (!gpu_number(device, "temperature", &value)) return NOT_SUPPORTED;
    *out = (unsigned)value;
    return SUCCESS;
}

/* `nvlink = 1 1 0 …`, one word a link */
int nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *out) {
    char text[128], *at = text;
    FAULT(GPU_OF(device));
    if (gpu_text(device, "nvlink", text, sizeof text)) return NOT_SUPPORTED;
    for (unsigned n = 0; *at; n++) {
        char *end;
        unsigned long state = strtoul(at, &end, 10);
        if (end == at) break;
        if (n == link) { *out = (unsigned)state; return SUCCESS; }
        at = end;
    }
    return INVALID_ARGUMENT;
}

/* `field.ID = value`, each with its own return code as in the real call */
int nvmlDeviceGetFieldValues(device_t device, int count, field_t *out) {
    FAULT(GPU_OF(device));
    for (int i = 0; i < count; i++) {
        char what[32];
        unsigned long long value;
        snprintf(what, sizeof what, "field.%u", out[i].field);
        out[i].rc = gpu_number(device, what, &value) ? SUCCESS : NOT_SUPPORTED;
        if (out[i].rc) continue;
        out[i].type = 1; /* unsigned int */
        out[i].value.ull = value;
    }
    return SUCCESS;
}
