/* Columns handed over as Arrow arrays. */
#include <stdlib.h>
#include <string.h>

#include "columns.h"

enum { MAX_CHILDREN = 8, MAX_BUFFERS = 3 };

/* What one exported array owns. Its children may be moved out and released apart from
 * it and from each other, in any order and on any thread. */
typedef struct {
    const void *buffers[MAX_BUFFERS];
    constants *same; /* set where the buffers are the shared ones */
    struct ArrowArray children[MAX_CHILDREN];
    struct ArrowArray *child_pointers[MAX_CHILDREN];
} exported;

static void release(struct ArrowArray *array) {
    exported *own = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++)
        if (own->children[i].release) own->children[i].release(&own->children[i]);
    if (own->same)
        constants_drop(own->same);
    else
        for (int i = 0; i < MAX_BUFFERS; i++)
            free((void *)own->buffers[i]);
    free(own);
    array->release = NULL;
}

/* Make `array` an array without buffers; all that can fail in an export. */
static column_result prepare(struct ArrowArray *array, int children) {
    exported *own = calloc(1, sizeof *own);
    if (!own) return COLUMN_NO_MEMORY;
    for (int i = 0; i < children; i++)
        own->child_pointers[i] = &own->children[i];
    struct ArrowArray prepared = {.n_buffers = 1,
                                  .n_children = children,
                                  .buffers = own->buffers,
                                  .children = children ? own->child_pointers : NULL,
                                  .release = release,
                                  .private_data = own};
    *array = prepared;
    return COLUMN_OK;
}

static exported *own_of(struct ArrowArray *array) { return array->private_data; }

static void set_buffers(struct ArrowArray *array, int64_t rows, int64_t nulls,
                        int count, void *valid, void *second, void *third) {
    exported *own = own_of(array);
    array->length = rows;
    array->null_count = nulls;
    array->n_buffers = count;
    own->buffers[0] = valid;
    own->buffers[1] = second;
    own->buffers[2] = third;
}

static void give_bytes(struct ArrowArray *array, var_column *column) {
    set_buffers(array, column->rows, column->nulls, 3, column->valid, column->ends,
                column->bytes);
    var_column_give_away(column);
}

static void give_numbers(struct ArrowArray *array, int64_t rows, void *slot) {
    void **numbers = slot;
    set_buffers(array, rows, 0, 2, NULL, *numbers, NULL);
    *numbers = NULL;
}

static void give_times(struct ArrowArray *array, columns *c) {
    set_buffers(array, c->rows, c->timestamp_nulls, 2, c->timestamp_valid,
                c->timestamp_us, NULL);
    c->timestamp_us = NULL;
    c->timestamp_valid = NULL;
    c->timestamp_nulls = 0;
}

static void share(struct ArrowArray *array, constants *same) {
    constants_hold(same);
    own_of(array)->same = same;
}

/* list<struct<key, value>>: the list owns the struct, which owns the two. */
static void give_headers(struct ArrowArray *list, columns *c) {
    struct ArrowArray *entry = list->children[0];
    set_buffers(list, c->rows, c->headers.nulls, 2, c->headers.valid, c->headers.ends,
                NULL);
    set_buffers(entry, c->header_key.rows, 0, 1, NULL, NULL, NULL);
    var_column_give_away(&c->headers);
    give_bytes(entry->children[0], &c->header_key);
    give_bytes(entry->children[1], &c->header_value);
}

static column_result prepare_headers(struct ArrowArray *list) {
    if (prepare(list, 1)) return COLUMN_NO_MEMORY;
    struct ArrowArray *entry = list->children[0];
    if (prepare(entry, 2) || prepare(entry->children[0], 0) ||
        prepare(entry->children[1], 0))
        return COLUMN_NO_MEMORY;
    return COLUMN_OK;
}

static column_result prepare_all(struct ArrowArray *out, const columns *c) {
    int plain = 7;
    if (prepare(out, plain + (c->has_headers ? 1 : 0))) return COLUMN_NO_MEMORY;
    for (int i = 0; i < plain; i++)
        if (prepare(out->children[i], 0)) return COLUMN_NO_MEMORY;
    return c->has_headers ? prepare_headers(out->children[plain]) : COLUMN_OK;
}

/* An Arrow buffer of offsets or bytes must exist even where no row filled it. */
static column_result make_buffers(var_column *column) {
    if (var_column_reserve(column, 0)) return COLUMN_NO_MEMORY;
    if (column->ends) return COLUMN_OK;
    column->ends = calloc(1, sizeof *column->ends);
    return column->ends ? COLUMN_OK : COLUMN_NO_MEMORY;
}

/* One bit for each row, where there is a null. */
static column_result mark_times(columns *c) {
    if (!c->timestamp_nulls || c->timestamp_valid) return COLUMN_OK;
    c->timestamp_valid = calloc((size_t)(c->rows + 7) / 8, 1);
    if (!c->timestamp_valid) return COLUMN_NO_MEMORY;
    for (int64_t row = 0; row < c->rows; row++)
        if (c->timestamp_us[row] != NO_TIME)
            c->timestamp_valid[row / 8] |= (uint8_t)(1 << row % 8);
    return COLUMN_OK;
}

static column_result make_all_buffers(columns *c) {
    if (mark_times(c)) return COLUMN_NO_MEMORY;
    if (make_buffers(&c->key) || make_buffers(&c->value)) return COLUMN_NO_MEMORY;
    if (!c->has_headers) return COLUMN_OK;
    if (make_buffers(&c->header_key) || make_buffers(&c->header_value))
        return COLUMN_NO_MEMORY;
    return COLUMN_OK;
}

column_result columns_export(columns *c, struct ArrowArray *out) {
    struct ArrowArray batch;
    memset(&batch, 0, sizeof batch);
    if (constants_for(&c->same, c->rows, c->topic, c->partition) ||
        make_all_buffers(c) || prepare_all(&batch, c)) {
        if (batch.release) batch.release(&batch);
        return COLUMN_NO_MEMORY;
    }
    batch.length = c->rows;
    give_bytes(batch.children[0], &c->key);
    give_bytes(batch.children[1], &c->value);
    share(batch.children[2], c->same);
    set_buffers(batch.children[2], c->rows, 0, 3, NULL, c->same->topic_ends,
                c->same->topic_bytes);
    share(batch.children[3], c->same);
    set_buffers(batch.children[3], c->rows, 0, 2, NULL, c->same->partition, NULL);
    give_numbers(batch.children[4], c->rows, &c->offset);
    give_times(batch.children[5], c);
    give_numbers(batch.children[6], c->rows, &c->timestamp_type);
    if (c->has_headers) give_headers(batch.children[7], c);
    c->likely_rows = c->rows;
    c->rows = c->bytes = c->room_rows = 0;
    *out = batch;
    return COLUMN_OK;
}
