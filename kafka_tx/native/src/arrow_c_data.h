/* The Arrow C data interface: the structures through which columns change hands.
 *
 * Their layout is fixed by the Arrow specification. What is read is handed over as arrays,
 * whose schema comes from the Python side; what is written comes with its schema.
 */
#ifndef KAFKA_TX_ARROW_C_DATA_H
#define KAFKA_TX_ARROW_C_DATA_H

#include <stdint.h>

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif
