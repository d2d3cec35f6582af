#include "var_column.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 64 };

int64_t next_room(int64_t needed, int64_t room, int64_t likely) {
    int64_t next = room ? room * 2 : likely + likely / 8;
    if (next < FIRST_ROOM) next = FIRST_ROOM;
    return next < needed ? needed : next;
}

column_result grow(void *block, int64_t items, size_t size) {
    void **slot = block;
    void *grown = realloc(*slot, (size_t)items * size);
    if (!grown) return COLUMN_NO_MEMORY;
    *slot = grown;
    return COLUMN_OK;
}

static size_t bitmap_size(int64_t rows) { return (size_t)((rows + 7) / 8); }

static column_result reserve_row(var_column *column) {
    if (column->rows < column->room_rows) return COLUMN_OK;
    int64_t room = next_room(column->rows + 1, column->room_rows, column->likely_rows);
    if (grow(&column->ends, room + 1, sizeof *column->ends)) return COLUMN_NO_MEMORY;
    if (column->valid) {
        size_t before = bitmap_size(column->room_rows), after = bitmap_size(room);
        if (grow(&column->valid, (int64_t)after, 1)) return COLUMN_NO_MEMORY;
        memset(column->valid + before, 0xFF, after - before);
    }
    column->ends[0] = 0;
    column->room_rows = room;
    return COLUMN_OK;
}

column_result var_column_reserve(var_column *column, size_t size) {
    int64_t end = var_column_end(column);
    if (size > (size_t)(INT32_MAX - end)) return COLUMN_TOO_LARGE;
    int64_t needed = end + (int64_t)size;
    if (needed <= column->room_bytes && column->bytes) return COLUMN_OK;
    int64_t room = next_room(needed, column->room_bytes, column->likely_bytes);
    if (grow(&column->bytes, room, 1)) return COLUMN_NO_MEMORY;
    column->room_bytes = room;
    return COLUMN_OK;
}

static column_result add_null(var_column *column) {
    if (!column->valid) {
        size_t size = bitmap_size(column->room_rows);
        column->valid = malloc(size);
        if (!column->valid) return COLUMN_NO_MEMORY;
        memset(column->valid, 0xFF, size);
    }
    column->valid[column->rows / 8] &= (uint8_t)~(1u << (column->rows % 8));
    column->nulls++;
    return COLUMN_OK;
}

static column_result end_row(var_column *column, int64_t end, int is_null) {
    if (reserve_row(column)) return COLUMN_NO_MEMORY;
    if (is_null && add_null(column)) return COLUMN_NO_MEMORY;
    column->ends[++column->rows] = (int32_t)end;
    return COLUMN_OK;
}

column_result var_column_add(var_column *column, const void *data, size_t size) {
    if (!data) return end_row(column, var_column_end(column), 1);
    column_result result = var_column_reserve(column, size);
    if (result) return result;
    memcpy(column->bytes + var_column_end(column), data, size);
    return var_column_add_written(column, size);
}

column_result var_column_add_written(var_column *column, size_t size) {
    return end_row(column, var_column_end(column) + (int64_t)size, 0);
}

column_result var_column_add_list(var_column *column, int64_t end) {
    return end_row(column, end, end == var_column_end(column));
}

void var_column_give_away(var_column *column) {
    var_column next = {.likely_rows = column->rows,
                       .likely_bytes = var_column_end(column)};
    *column = next;
}

void var_column_free(var_column *column) {
    free(column->valid);
    free(column->ends);
    free(column->bytes);
    var_column empty = {0};
    *column = empty;
}
