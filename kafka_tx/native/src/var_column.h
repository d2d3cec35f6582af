/* A column whose rows differ in length: binary, string, or the offsets of a list. */
#ifndef KAFKA_TX_VAR_COLUMN_H
#define KAFKA_TX_VAR_COLUMN_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    COLUMN_OK = 0,
    COLUMN_NO_MEMORY,
    COLUMN_TOO_LARGE /* over the 2 GiB that a 32-bit offset can address */
} column_result;

typedef struct {
    uint8_t *valid; /* one bit a row, 0 for a null; NULL while there is no null */
    int32_t *ends;  /* row i is ends[i] .. ends[i + 1] */
    uint8_t *bytes;
    int64_t rows;
    int64_t nulls;
    int64_t room_rows;
    int64_t room_bytes;
    int64_t likely_rows; /* of the batch before: what to allocate at once */
    int64_t likely_bytes;
} var_column;

/* Add a row of `size` bytes, or a null where `data` is NULL. */
column_result var_column_add(var_column *, const void *data, size_t size);

/* Add a row without bytes that ends at `end`; null where it does not begin below. */
column_result var_column_add_list(var_column *, int64_t end);

/* Room for `size` more bytes, written by the caller before it adds the row. */
column_result var_column_reserve(var_column *, size_t size);

/* Add a row of `size` bytes that were written behind the last one. */
column_result var_column_add_written(var_column *, size_t size);

/* Forget the buffers, which now belong to someone else; remember their sizes. */
void var_column_give_away(var_column *);

void var_column_free(var_column *);

static inline int64_t var_column_end(const var_column *column) {
    return column->rows ? column->ends[column->rows] : 0;
}

/* Room for `items` of `size` bytes in `*block`, keeping what is there. */
column_result grow(void *block, int64_t items, size_t size);

/* How much room to make for `needed` items where there is `room` and `likely` were
 * enough the last time: at least double, so that adding stays linear. */
int64_t next_room(int64_t needed, int64_t room, int64_t likely);

#endif
