#include "outgoing.h"

#include <string.h>

/* `parent_first`: a struct's offset holds for its children, beside their own. */
static void open_column(out_column *column, const char *format,
                        const struct ArrowArray *array, int64_t parent_first) {
    column->valid = array->null_count ? array->buffers[0] : NULL;
    column->values = array->buffers[1];
    column->bytes = array->n_buffers > 2 ? array->buffers[2] : NULL;
    column->first = parent_first + array->offset;
    column->is_wide = format[0] == 'Z' || format[0] == 'U';
    /* a column of no rows may come without offsets */
    if (!column->values) column->values = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
}

static int is_one_of(const char *format, const char *legal) {
    return strlen(format) == 1 && strchr(legal, format[0]);
}

/* list<struct<key, value>> */
static int open_headers(outgoing *rows, const struct ArrowSchema *schema,
                        const struct ArrowArray *list, int64_t first) {
    if (strcmp(schema->format, "+l") || list->n_children != 1) return -1;
    const struct ArrowSchema *entry = schema->children[0];
    const struct ArrowArray *entries = list->children[0];
    if (strcmp(entry->format, "+s") || entries->n_children != 2) return -1;
    if (!is_one_of(entry->children[0]->format, "zuZU") ||
        !is_one_of(entry->children[1]->format, "zuZU"))
        return -1;
    open_column(&rows->headers, "+l", list, first);
    open_column(&rows->header_key, entry->children[0]->format, entries->children[0],
                entries->offset);
    open_column(&rows->header_value, entry->children[1]->format, entries->children[1],
                entries->offset);
    return 0;
}

static int open_child(outgoing *rows, const struct ArrowSchema *schema,
                      const struct ArrowArray *array, int64_t first) {
    struct {
        const char *name, *legal;
        out_column *column;
    } known[] = {
        {"key", "zuZU", &rows->key},
        {"value", "zuZU", &rows->value},
        {"topic", "i", &rows->topic},
        {"partition", "i", &rows->partition},
        {"timestamp", "l", &rows->timestamp_ms},
    };
    if (!strcmp(schema->name, "headers"))
        return open_headers(rows, schema, array, first);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(schema->name, known[i].name)) continue;
        if (!is_one_of(schema->format, known[i].legal)) return -1;
        open_column(known[i].column, schema->format, array, first);
        return 0;
    }
    return -1;
}

const char *outgoing_open(outgoing *rows, const struct ArrowSchema *schema,
                          const struct ArrowArray *array) {
    memset(rows, 0, sizeof *rows);
    rows->rows = array->length;
    if (strcmp(schema->format, "+s") || schema->n_children != array->n_children)
        return "record batch";
    for (int64_t i = 0; i < array->n_children; i++)
        if (open_child(rows, schema->children[i], array->children[i], array->offset))
            return schema->children[i]->name;
    return NULL;
}
