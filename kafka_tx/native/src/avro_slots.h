/* The slots of a typed column that is being filled: one for each type of a schema.
 *
 * Slots are numbered as in schemas/columns.py: a type before its parts, and the parts
 * in turn. A column that failed may be freed, and nothing else.
 */
#ifndef KAFKA_TX_AVRO_SLOTS_H
#define KAFKA_TX_AVRO_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "arrow_c_data.h"

/* As columns.Kind. */
typedef enum {
    SLOT_NULL,
    SLOT_BOOLEAN,
    SLOT_INT32,
    SLOT_INT64,
    SLOT_FLOAT,
    SLOT_DOUBLE,
    SLOT_BINARY,
    SLOT_TEXT,
    SLOT_DECIMAL,
    SLOT_STRUCT,
    SLOT_LIST,
    SLOT_MAP,
    SLOT_KINDS
} slot_kind;

typedef enum {
    SLOTS_OK = 0,
    SLOTS_NO_MEMORY = -1,
    SLOTS_FULL = -2,  /* 2^31 values or bytes in one slot */
    SLOTS_WRONG = -3, /* the program or the layout is none */
} slots_result;

typedef struct {
    slot_kind kind;
    int parts; /* direct ones; the first follows its slot */
    int end;   /* number of the slot behind those below */
    int width; /* slots that one value fills: itself and below, up to lists and maps */
    int64_t rows, room;
    uint8_t *valid; /* one bit for each row; NULL as long as nothing is null */
    void *values;   /* numbers; bits of a boolean; int32 ends, from 0, of others */
    uint8_t *bytes; /* of texts and binaries */
    int64_t bytes_room;
} avro_slot;

typedef struct {
    avro_slot *all;
    int count;
} avro_slots;

/* Kind and number of parts of each slot, in turn; SLOTS_WRONG where they are no tree. */
slots_result slots_init(avro_slots *slots, const int32_t *layout, size_t words);
void slots_free(avro_slots *slots);

/* Make room for a row and return where its number goes; NULL: `result` says why. */
void *slot_number(avro_slot *slot, slots_result *result);

slots_result slot_boolean(avro_slot *slot, int is_true);
slots_result slot_bytes(avro_slot *slot, const uint8_t *bytes, int64_t size);
/* A list or a map of so many items, which were appended before. */
slots_result slot_items(avro_slot *slot, int64_t items);
slots_result slot_struct(avro_slot *slot);
/* Null; of a struct also in the slots below it, up to lists and maps. */
slots_result slots_null(avro_slots *slots, int number);

/* Take away what was appended since the column had so many rows. */
void slots_cut(avro_slots *slots, int64_t rows);

/* Hand the column over; SLOTS_WRONG where parts have other lengths than their struct or
 * list. Where it fails, `out` is as before. */
slots_result slots_export(avro_slots *slots, struct ArrowArray *out);

#endif
