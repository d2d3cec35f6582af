/* Decodes bytes that are no records, and exports, while each allocation fails in turn.
 *
 * Linked with --wrap for malloc, calloc and realloc of the code under test. Prints how
 * many allocations a run without failures makes; a sanitizer or valgrind says the rest.
 * Each record is a copy of exactly its size, so that a byte too far is noticed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "avro_decode.h"
#include "failing.h"

/* record {flag: null or boolean, text, items: array of decimals, map of enums} */
static const int32_t LAYOUT[] = {SLOT_STRUCT,  4, SLOT_BOOLEAN, 0, SLOT_TEXT, 0,
                                 SLOT_LIST,    1, SLOT_DECIMAL, 0, SLOT_MAP,  2,
                                 SLOT_TEXT,    0, SLOT_TEXT,    0};
static const int32_t CODE[] = {
    OP_RECORD,   0,                         /* 0 */
    OP_UNION,    2, 6, 10,                  /* 2 */
    OP_NULL,     1, OP_JUMP, 12,            /* 6 */
    OP_BOOLEAN,  1,                         /* 10 */
    OP_TEXT,     2,                         /* 12 */
    OP_ARRAY,    3, 21, 1,                  /* 14 */
    OP_DECIMAL,  4, 20,                     /* 18 */
    OP_MAP,      5, 31,                     /* 21 */
    OP_ENUM,     7, 2, 0, 2, 7, -1,         /* 24 */
    OP_SKIP_BLOCKS, 36, 1, 1, OP_SKIP_LONG, /* 31 */
    OP_END,                                 /* 36 */
};
static const uint8_t WHOLE[] = {2, 1, 4, 'h', 'i', 4, 2,   0x64, 4, 1,
                                0, 0, 2, 2,   'k', 0, 0, 2, 2, 'k', 0, 0};

static uint32_t noise = 1;

static uint32_t next(void) { return noise = noise * 1664525 + 1013904223; }

/* Positive: a reason; negative: a slots_result. */
static int decode(const avro_program *program, avro_slots *slots, const uint8_t *bytes,
                  size_t size) {
    int32_t detail;
    uint8_t *exact = __real_malloc(size ? size : 1);
    if (size) memcpy(exact, bytes, size);
    int result = avro_decode(program, slots, exact, size, &detail);
    free(exact);
    return result;
}

static int decode_noise(const avro_program *program, avro_slots *slots) {
    uint8_t bytes[sizeof WHOLE];
    for (int i = 0; i < 2000; i++) {
        memcpy(bytes, WHOLE, sizeof WHOLE);
        for (int changed = i % 4; changed--;)
            bytes[(next() >> 8) % sizeof bytes] = (uint8_t)(next() >> 16);
        int result = decode(program, slots, bytes, (next() >> 8) % (sizeof bytes + 1));
        if (result > 0) result = slots_null(slots, 0);
        if (result) return result;
        result = decode(program, slots, WHOLE, sizeof WHOLE);
        if (result) return result > 0 ? SLOTS_WRONG : result; /* it is a record */
    }
    return 0;
}

static int run(void) {
    avro_slots slots;
    avro_program program = {CODE, sizeof CODE / sizeof *CODE, (const uint8_t *)"ab", 2};
    struct ArrowArray made;
    noise = 1;
    int result = slots_init(&slots, LAYOUT, sizeof LAYOUT / sizeof *LAYOUT);
    if (!result) result = avro_check(&program, &slots);
    if (!result) result = decode_noise(&program, &slots);
    if (!result) result = slots_export(&slots, &made);
    slots_free(&slots);
    if (!result) {
        struct ArrowArray moved = *made.children[2]; /* apart from its parent */
        made.children[2]->release = NULL;
        made.release(&made);
        moved.release(&moved);
    }
    return result;
}

int main(void) {
    int result = run();
    if (result) return 10 - result;
    long needed = allocations;
    for (long n = 1; n <= needed; n++) {
        allocations = 0;
        until_failure = n;
        if (run() != SLOTS_NO_MEMORY) return 2;
    }
    printf("%ld\n", needed);
    return 0;
}
