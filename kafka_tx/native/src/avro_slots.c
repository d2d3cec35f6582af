#include "avro_slots.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a value; 0 where the kind has none, or bits. */
static const uint8_t WIDTH[SLOT_KINDS] = {
    [SLOT_INT32] = 4,  [SLOT_INT64] = 8, [SLOT_FLOAT] = 4, [SLOT_DOUBLE] = 8,
    [SLOT_BINARY] = 4, [SLOT_TEXT] = 4,  [SLOT_LIST] = 4,  [SLOT_MAP] = 4,
    [SLOT_DECIMAL] = 16,
};

static int has_ends(slot_kind kind) {
    return kind == SLOT_BINARY || kind == SLOT_TEXT || kind == SLOT_LIST ||
           kind == SLOT_MAP;
}

/* --- making ----------------------------------------------------------------------- */

static int has_its_parts(slot_kind kind, int parts) {
    switch (kind) {
    case SLOT_STRUCT: return parts >= 0;
    case SLOT_LIST: return parts == 1;
    case SLOT_MAP: return parts == 2;
    default: return parts == 0;
    }
}

/* From the last slot to the first, so that the ends of its parts are known. */
static slots_result place(avro_slots *slots, int number) {
    avro_slot *slot = &slots->all[number];
    if (slot->kind >= SLOT_KINDS || !has_its_parts(slot->kind, slot->parts))
        return SLOTS_WRONG;
    int end = number + 1, below = 0;
    for (int part = 0; part < slot->parts; part++) {
        if (end >= slots->count) return SLOTS_WRONG;
        below += slots->all[end].width;
        end = slots->all[end].end;
    }
    if (slot->kind == SLOT_MAP && slots->all[number + 1].kind != SLOT_TEXT)
        return SLOTS_WRONG; /* its keys */
    slot->end = end;
    slot->width = slot->kind == SLOT_STRUCT ? below + 1 : 1;
    return SLOTS_OK;
}

slots_result slots_init(avro_slots *slots, const int32_t *layout, size_t words) {
    memset(slots, 0, sizeof *slots);
    if (!words || words % 2 || words > INT32_MAX) return SLOTS_WRONG;
    slots->all = calloc(words / 2, sizeof *slots->all);
    if (!slots->all) return SLOTS_NO_MEMORY;
    slots->count = (int)(words / 2);
    for (int number = slots->count; number--;) {
        slots->all[number].kind = (slot_kind)layout[2 * number];
        slots->all[number].parts = layout[2 * number + 1];
        if (place(slots, number)) return SLOTS_WRONG;
    }
    return slots->all[0].end == slots->count ? SLOTS_OK : SLOTS_WRONG;
}

void slots_free(avro_slots *slots) {
    for (int i = 0; i < slots->count; i++) {
        free(slots->all[i].valid);
        free(slots->all[i].values);
        free(slots->all[i].bytes);
    }
    free(slots->all);
    memset(slots, 0, sizeof *slots);
}

/* --- room ------------------------------------------------------------------------- */

static size_t bits(int64_t rows) { return (size_t)(rows + 7) / 8; }

static size_t size_of_values(const avro_slot *slot, int64_t room) {
    if (slot->kind == SLOT_BOOLEAN) return bits(room);
    return WIDTH[slot->kind] * (size_t)(room + has_ends(slot->kind));
}

static slots_result set_room(avro_slot *slot, int64_t room) {
    size_t size = size_of_values(slot, room);
    if (slot->valid) {
        uint8_t *valid = realloc(slot->valid, bits(room));
        if (!valid) return SLOTS_NO_MEMORY;
        slot->valid = valid;
    }
    if (size) {
        void *values = realloc(slot->values, size);
        if (!values) return SLOTS_NO_MEMORY;
        if (!slot->values) memset(values, 0, size); /* the first end is 0 */
        slot->values = values;
    }
    slot->room = room;
    return SLOTS_OK;
}

static slots_result grow(avro_slot *slot) {
    if (slot->rows >= INT32_MAX - 1) return SLOTS_FULL;
    int64_t room = slot->room ? 2 * slot->room : 64;
    return set_room(slot, room < INT32_MAX ? room : INT32_MAX - 1);
}

static inline slots_result reserve(avro_slot *slot) {
    return slot->rows < slot->room ? SLOTS_OK : grow(slot);
}

static void put_bit(uint8_t *field, int64_t at, int is_set) {
    uint8_t bit = (uint8_t)(1 << at % 8);
    if (is_set)
        field[at / 8] |= bit;
    else
        field[at / 8] &= (uint8_t)~bit;
}

/* One more row, for which there is room. */
static inline void count_row(avro_slot *slot) {
    if (slot->valid) put_bit(slot->valid, slot->rows, 1);
    slot->rows++;
}

/* --- appending -------------------------------------------------------------------- */

void *slot_number(avro_slot *slot, slots_result *result) {
    *result = reserve(slot);
    if (*result) return NULL;
    uint8_t *place = slot->values;
    place += slot->rows * WIDTH[slot->kind];
    count_row(slot);
    return place;
}

slots_result slot_boolean(avro_slot *slot, int is_true) {
    slots_result result = reserve(slot);
    if (result) return result;
    put_bit(slot->values, slot->rows, is_true);
    count_row(slot);
    return SLOTS_OK;
}

static slots_result reserve_bytes(avro_slot *slot, int64_t wanted) {
    if (wanted > INT32_MAX) return SLOTS_FULL;
    int64_t room = slot->bytes_room ? 2 * slot->bytes_room : 256;
    if (room < wanted) room = wanted;
    if (room > INT32_MAX) room = INT32_MAX;
    uint8_t *bytes = realloc(slot->bytes, (size_t)room);
    if (!bytes) return SLOTS_NO_MEMORY;
    slot->bytes = bytes;
    slot->bytes_room = room;
    return SLOTS_OK;
}

slots_result slot_bytes(avro_slot *slot, const uint8_t *bytes, int64_t size) {
    slots_result result = reserve(slot);
    if (result) return result;
    int32_t *ends = slot->values;
    int64_t used = ends[slot->rows];
    if (used + size > slot->bytes_room && (result = reserve_bytes(slot, used + size)))
        return result;
    if (size) memcpy(slot->bytes + used, bytes, (size_t)size);
    ends[slot->rows + 1] = (int32_t)(used + size);
    count_row(slot);
    return SLOTS_OK;
}

slots_result slot_items(avro_slot *slot, int64_t items) {
    slots_result result = reserve(slot);
    if (result) return result;
    int32_t *ends = slot->values;
    if (items > INT32_MAX - ends[slot->rows]) return SLOTS_FULL;
    ends[slot->rows + 1] = ends[slot->rows] + (int32_t)items;
    count_row(slot);
    return SLOTS_OK;
}

slots_result slot_struct(avro_slot *slot) {
    slots_result result = reserve(slot);
    if (!result) count_row(slot);
    return result;
}

/* From the first null on each row has a bit. */
static slots_result begin_valid(avro_slot *slot) {
    slot->valid = malloc(bits(slot->room));
    if (!slot->valid) return SLOTS_NO_MEMORY;
    memset(slot->valid, 0xFF, bits(slot->rows));
    return SLOTS_OK;
}

static slots_result null_here(avro_slot *slot) {
    slots_result result = reserve(slot);
    if (result) return result;
    if (!slot->valid && slot->kind != SLOT_NULL && (result = begin_valid(slot)))
        return result;
    if (has_ends(slot->kind)) {
        int32_t *ends = slot->values;
        ends[slot->rows + 1] = ends[slot->rows];
    } else if (slot->kind == SLOT_BOOLEAN) {
        put_bit(slot->values, slot->rows, 0);
    } else if (WIDTH[slot->kind]) {
        uint8_t *values = slot->values;
        memset(values + slot->rows * WIDTH[slot->kind], 0, WIDTH[slot->kind]);
    }
    if (slot->valid) put_bit(slot->valid, slot->rows, 0);
    slot->rows++;
    return SLOTS_OK;
}

static int repeats(const avro_slot *slot) {
    return slot->kind == SLOT_LIST || slot->kind == SLOT_MAP;
}

slots_result slots_null(avro_slots *slots, int number) {
    int end = slots->all[number].end;
    while (number < end) {
        avro_slot *slot = &slots->all[number];
        slots_result result = null_here(slot);
        if (result) return result;
        number = repeats(slot) ? slot->end : number + 1;
    }
    return SLOTS_OK;
}

/* --- taking away ------------------------------------------------------------------ */

/* The rows of a slot's parts once it has so many itself. */
static int64_t rows_below(const avro_slot *slot) {
    const int32_t *ends = slot->values;
    if (!repeats(slot)) return slot->rows;
    return ends ? ends[slot->rows] : 0;
}

void slots_cut(avro_slots *slots, int64_t rows) {
    slots->all[0].rows = rows;
    for (int number = 0; number < slots->count; number++) {
        avro_slot *slot = &slots->all[number];
        int part = number + 1;
        for (int i = 0; i < slot->parts; i++, part = slots->all[part].end)
            if (slots->all[part].rows > rows_below(slot))
                slots->all[part].rows = rows_below(slot);
    }
}

/* --- handing over ----------------------------------------------------------------- */

enum { MAX_BUFFERS = 3 };

/* What an exported array owns: its buffers, and its children until they are moved out. */
typedef struct {
    const void *buffers[MAX_BUFFERS];
    struct ArrowArray **pointers;
    struct ArrowArray *children;
} exported;

static void release(struct ArrowArray *array) {
    exported *own = array->private_data;
    for (int64_t i = 0; i < array->n_children; i++)
        if (own->children[i].release) own->children[i].release(&own->children[i]);
    for (int i = 0; i < MAX_BUFFERS; i++)
        free((void *)own->buffers[i]);
    free(own->pointers);
    free(own->children);
    free(own);
    array->release = NULL;
}

/* An array without buffers, and with children that have nothing to release. */
static slots_result prepare(struct ArrowArray *array, int64_t rows, int children) {
    exported *own = calloc(1, sizeof *own);
    if (!own) return SLOTS_NO_MEMORY;
    if (children) {
        own->pointers = calloc((size_t)children, sizeof *own->pointers);
        own->children = calloc((size_t)children, sizeof *own->children);
        if (!own->pointers || !own->children) {
            free(own->pointers);
            free(own->children);
            free(own);
            return SLOTS_NO_MEMORY;
        }
    }
    for (int i = 0; i < children; i++)
        own->pointers[i] = &own->children[i];
    struct ArrowArray prepared = {.length = rows,
                                  .n_children = children,
                                  .buffers = own->buffers,
                                  .children = own->pointers,
                                  .release = release,
                                  .private_data = own};
    *array = prepared;
    return SLOTS_OK;
}

static void give_buffers(struct ArrowArray *array, avro_slot *slot) {
    exported *own = array->private_data;
    if (slot->kind == SLOT_NULL) {
        array->null_count = slot->rows;
        return;
    }
    array->null_count = slot->valid ? -1 : 0; /* -1: not counted */
    array->n_buffers = slot->kind == SLOT_STRUCT ? 1 : slot->bytes ? 3 : 2;
    own->buffers[0] = slot->valid;
    own->buffers[1] = slot->values;
    own->buffers[2] = slot->bytes;
    slot->valid = slot->bytes = NULL;
    slot->values = NULL;
}

/* Arrow wants ends and bytes where there is no row, too. */
static slots_result make_buffers(avro_slot *slot) {
    if (!slot->values && set_room(slot, slot->rows ? slot->rows : 1))
        return SLOTS_NO_MEMORY;
    int is_text = slot->kind == SLOT_BINARY || slot->kind == SLOT_TEXT;
    return is_text && !slot->bytes ? reserve_bytes(slot, 0) : SLOTS_OK;
}

static slots_result export_slot(avro_slots *slots, int number, int64_t rows,
                                struct ArrowArray *out);

static slots_result export_parts(avro_slots *slots, int number, int64_t rows,
                                 struct ArrowArray *out) {
    slots_result result = SLOTS_OK;
    int part = number + 1;
    for (int i = 0; i < slots->all[number].parts && !result; i++) {
        result = export_slot(slots, part, rows, out->children[i]);
        part = slots->all[part].end;
    }
    return result;
}

/* The entries of a map are a struct of keys and values, which is no slot. */
static slots_result export_entries(avro_slots *slots, int number, int64_t rows,
                                   struct ArrowArray *out) {
    if (prepare(out, rows, 2)) return SLOTS_NO_MEMORY;
    out->n_buffers = 1;
    return export_parts(slots, number, rows, out);
}

/* `out` is released by whoever has the root of it, also where this fails. */
static slots_result export_slot(avro_slots *slots, int number, int64_t rows,
                                struct ArrowArray *out) {
    avro_slot *slot = &slots->all[number];
    int is_map = slot->kind == SLOT_MAP;
    if (slot->rows != rows) return SLOTS_WRONG;
    if (make_buffers(slot) || prepare(out, rows, is_map ? 1 : slot->parts))
        return SLOTS_NO_MEMORY;
    int64_t below = rows_below(slot);
    give_buffers(out, slot);
    if (is_map) return export_entries(slots, number, below, out->children[0]);
    return export_parts(slots, number, below, out);
}

slots_result slots_export(avro_slots *slots, struct ArrowArray *out) {
    struct ArrowArray made;
    memset(&made, 0, sizeof made);
    slots_result result = export_slot(slots, 0, slots->all[0].rows, &made);
    if (result) {
        if (made.release) made.release(&made);
        return result;
    }
    *out = made;
    return SLOTS_OK;
}
