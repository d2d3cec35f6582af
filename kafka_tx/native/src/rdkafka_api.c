#include "rdkafka_api.h"

#include <dlfcn.h>
#include <stdio.h>

#include "old_glibc.h"

OLD_VERSION(dlopen, "2.2.5", "2.17");
OLD_VERSION(dlsym, "2.2.5", "2.17");
OLD_VERSION(dlerror, "2.2.5", "2.17");

enum { KNOWN_MAJOR = 2 };

static int find(void *library, const char *name, void *slot, char *why, size_t size) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        snprintf(why, size, "librdkafka has no function %s", name);
        return -1;
    }
    *(void **)slot = symbol; /* POSIX lets a function pointer pass through void * */
    return 0;
}

int rdk_bind(rdk_api *api, const char *path, char *why, size_t why_size) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(why, why_size, "%s cannot be loaded%s%s", path, reason ? ": " : "",
                 reason ? reason : "");
        return -1;
    }
    /* The handle stays open: what is loaded is used until the process ends. */
#define RDK_FIND(result, name, parameters)                                             \
    if (find(library, "rd_kafka_" #name, &api->name, why, why_size)) return -1;
    RDK_FUNCTIONS(RDK_FIND)
#undef RDK_FIND

    int major = (int)((unsigned)api->version() >> 24);
    if (major != KNOWN_MAJOR) {
        snprintf(why, why_size, "librdkafka %s is not of the known major version %d",
                 api->version_str(), KNOWN_MAJOR);
        return -1;
    }
    return 0;
}
