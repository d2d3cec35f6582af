#include "columns.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

/* Offsets of key, value and topic; partition; offset; timestamp; timestampType. */
enum { FIXED_BYTES = 3 * 4 + 4 + 8 + 8 + 4, HEADER_FIXED_BYTES = 2 * 4 };

void columns_init(columns *c, const char *topic, int32_t partition, int has_headers) {
    columns empty = {.topic = topic,
                     .partition = partition,
                     .has_headers = has_headers,
                     .row_bytes = FIXED_BYTES + (int64_t)strlen(topic)};
    *c = empty;
}

int64_t columns_cost(const columns *c, size_t key_size, size_t value_size) {
    return c->row_bytes + (int64_t)(key_size + value_size);
}

static column_result reserve_row(columns *c) {
    if (c->rows < c->room_rows) return COLUMN_OK;
    int64_t room = next_room(c->rows + 1, c->room_rows, c->likely_rows);
    if (grow(&c->offset, room, sizeof *c->offset) ||
        grow(&c->timestamp_us, room, sizeof *c->timestamp_us) ||
        grow(&c->timestamp_type, room, sizeof *c->timestamp_type))
        return COLUMN_NO_MEMORY;
    c->room_rows = room;
    return COLUMN_OK;
}

column_result columns_add(columns *c, const void *key, size_t key_size,
                          const void *value, size_t value_size, int64_t offset,
                          int64_t timestamp_us, int32_t timestamp_type) {
    column_result result = reserve_row(c);
    if (!result) result = var_column_add(&c->key, key, key_size);
    if (!result) result = var_column_add(&c->value, value, value_size);
    if (!result && c->has_headers)
        result = var_column_add_list(&c->headers, c->header_key.rows);
    if (result) return result;
    c->offset[c->rows] = offset;
    c->timestamp_us[c->rows] = timestamp_us;
    c->timestamp_nulls += timestamp_us == NO_TIME;
    c->timestamp_type[c->rows] = timestamp_type;
    c->rows++;
    c->bytes += columns_cost(c, key ? key_size : 0, value ? value_size : 0);
    return COLUMN_OK;
}

column_result columns_add_header(columns *c, const char *key, const void *value,
                                 size_t value_size) {
    size_t size = strlen(key);
    column_result result = var_column_reserve(&c->header_key, size * UTF8_MAX_GROWTH);
    if (result) return result;
    uint8_t *to = c->header_key.bytes + var_column_end(&c->header_key);
    size = utf8_from_java((const uint8_t *)key, size, to);
    result = var_column_add_written(&c->header_key, size);
    if (!result) result = var_column_add(&c->header_value, value, value_size);
    c->bytes += HEADER_FIXED_BYTES + (int64_t)(size + (value ? value_size : 0));
    return result;
}

void columns_free(columns *c) {
    var_column_free(&c->key);
    var_column_free(&c->value);
    var_column_free(&c->headers);
    var_column_free(&c->header_key);
    var_column_free(&c->header_value);
    free(c->offset);
    free(c->timestamp_us);
    free(c->timestamp_valid);
    free(c->timestamp_type);
    constants_drop(c->same);
    columns_init(c, c->topic, c->partition, c->has_headers);
}

/* --- topic and partition ---------------------------------------------------------- */

void constants_hold(constants *same) {
    __atomic_add_fetch(&same->owners, 1, __ATOMIC_RELAXED);
}

void constants_drop(constants *same) {
    if (!same || __atomic_sub_fetch(&same->owners, 1, __ATOMIC_ACQ_REL)) return;
    free(same->topic_ends);
    free(same->topic_bytes);
    free(same->partition);
    free(same);
}

static column_result fill(constants *same, const char *topic, int32_t partition) {
    size_t length = strlen(topic);
    if (grow(&same->topic_ends, same->rows + 1, sizeof *same->topic_ends) ||
        grow(&same->topic_bytes, same->rows, length + 1) ||
        grow(&same->partition, same->rows, sizeof *same->partition))
        return COLUMN_NO_MEMORY;
    for (int64_t row = 0; row < same->rows; row++) {
        same->topic_ends[row] = (int32_t)(row * (int64_t)length);
        memcpy(same->topic_bytes + row * (int64_t)length, topic, length);
        same->partition[row] = partition;
    }
    same->topic_ends[same->rows] = (int32_t)(same->rows * (int64_t)length);
    return COLUMN_OK;
}

column_result constants_for(constants **slot, int64_t rows, const char *topic,
                            int32_t partition) {
    if (*slot && (*slot)->rows >= rows) return COLUMN_OK;
    constants *same = calloc(1, sizeof *same);
    if (!same) return COLUMN_NO_MEMORY;
    same->owners = 1;
    same->rows = next_room(rows, 0, rows);
    column_result result = fill(same, topic, partition);
    if (result) {
        constants_drop(same);
        return result;
    }
    constants_drop(*slot);
    *slot = same;
    return COLUMN_OK;
}
