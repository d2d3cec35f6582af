/* The Arrow C data interface: the structure through which columns change hands.
 *
 * Its layout is fixed by the Arrow specification; only arrays are handed over from
 * here, the schema comes from the Python side.
 */
#ifndef KAFKA_TX_ARROW_C_DATA_H
#define KAFKA_TX_ARROW_C_DATA_H

#include <stdint.h>

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
