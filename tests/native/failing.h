/* One allocation of the code under test that fails, chosen by the driver.
 *
 * For drivers that are linked with --wrap for malloc, calloc and realloc. */
#ifndef KAFKA_TX_FAILING_H
#define KAFKA_TX_FAILING_H

#include <stdlib.h>

static long until_failure; /* the allocation that fails; 0 for none */
static long allocations;

static int fails(void) { return ++allocations == until_failure; }

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *block, size_t size) {
    return fails() ? NULL : __real_realloc(block, size);
}

#endif
