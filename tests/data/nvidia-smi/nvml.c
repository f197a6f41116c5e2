/* A stand-in for libnvidia-ml.so.1: two GPUs of two-a100.json. Each reading of the first one's counter is 5 J higher,
   of the second one's 1 kJ; NVML_FALLS makes the first fall, NVML_LACKS=1 makes the second one lack a counter. */
#include <stdlib.h>
#include <string.h>

static unsigned long long reading[2] = {1000000, 2000000};

int nvmlInit_v2(void) { return getenv("NVML_INIT_FAILS") ? 18 : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = &reading[index]; return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int size) {
    strncpy(uuid, device == &reading[0] ? "GPU-5f6a1c2e-9b1d-4c7e-8f10-2a6b7c8d9e01"
                                        : "GPU-a0b1c2d3-1111-4222-8333-444455556666", size);
    return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    unsigned long long *mine = device;
    if (mine == &reading[1] && getenv("NVML_LACKS")) return 3; /* NVML_ERROR_NOT_SUPPORTED */
    *mine = mine == &reading[0] && getenv("NVML_FALLS") ? *mine - 1000 : *mine + (mine == &reading[0] ? 5000 : 1000000);
    *millijoules = *mine;
    return 0;
}
