/* Records to write, as views of the columns of an Arrow record batch. */
#ifndef KAFKA_TX_OUTGOING_H
#define KAFKA_TX_OUTGOING_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_c_data.h"

typedef struct {
    const uint8_t *valid; /* one bit a row; NULL where no row is null */
    const void *values;   /* numbers, or the offsets of bytes or of a list */
    const char *bytes;
    int64_t first; /* where the first row is in all of them */
    int is_wide;   /* 64-bit offsets */
} out_column;

typedef struct {
    const void *data; /* NULL for a null */
    size_t size;
} out_bytes;

/* Columns that are missing have no values. */
typedef struct {
    int64_t rows;
    out_column topic; /* int32: index of a topic */
    out_column key, value;
    out_column partition;    /* int32; null: chosen by the key */
    out_column timestamp_ms; /* int64; null: now */
    out_column headers;      /* a list; null: none */
    out_column header_key, header_value;
} outgoing;

/* Look at a batch, which must stay as long as `rows`. Returns NULL, or the name of the
 * column whose type is not one of those above. */
const char *outgoing_open(outgoing *rows, const struct ArrowSchema *,
                          const struct ArrowArray *);

static inline int out_is_null(const out_column *column, int64_t row) {
    int64_t at = column->first + row;
    return !column->values ||
           (column->valid && !(column->valid[at / 8] >> (at % 8) & 1));
}

static inline int64_t out_offset(const out_column *column, int64_t row) {
    int64_t at = column->first + row;
    return column->is_wide ? ((const int64_t *)column->values)[at]
                           : ((const int32_t *)column->values)[at];
}

static inline out_bytes out_bytes_at(const out_column *column, int64_t row) {
    if (out_is_null(column, row)) return (out_bytes){NULL, 0};
    int64_t start = out_offset(column, row), end = out_offset(column, row + 1);
    return (out_bytes){column->bytes ? column->bytes + start : "",
                       (size_t)(end - start)};
}

static inline int32_t out_int32(const out_column *column, int64_t row) {
    return ((const int32_t *)column->values)[column->first + row];
}

static inline int64_t out_int64(const out_column *column, int64_t row) {
    return ((const int64_t *)column->values)[column->first + row];
}

#endif
