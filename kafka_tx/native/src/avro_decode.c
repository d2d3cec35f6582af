#include "avro_decode.h"

#include <string.h>

#include "utf8.h"

enum { MOST_EMPTY_ITEMS = 1 << 10, MOST_VARINT_SHIFT = 63 };

/* Of a record: as program.FREE_VALUES and program.VALUES_OF_A_BYTE. */
enum { FREE_VALUES = 1 << 20, VALUES_OF_A_BYTE = 16 };

/* What is left of the bytes, and the items without bytes that were in them. */
typedef struct {
    const uint8_t *at, *end;
    uint64_t empty;
} cursor;

typedef struct {
    const avro_program *program;
    avro_slots *slots;
    int32_t detail; /* of REASON_FAILED */
    uint64_t allowed; /* values of items, and bytes of defaults, that may still come */
} machine;

/* --- numbers ---------------------------------------------------------------------- */

static int read_long_number(cursor *in, int64_t *found) {
    uint64_t number = 0;
    int shift = 0;
    uint8_t byte;
    do {
        if (in->at == in->end) return REASON_CUT;
        byte = *in->at++;
        if (shift == MOST_VARINT_SHIFT && byte > 1) return REASON_NUMBER;
        number |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
    } while (byte & 0x80);
    *found = (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
    return 0;
}

static inline int read_long(cursor *in, int64_t *found) {
    if (in->at == in->end || *in->at & 0x80) return read_long_number(in, found);
    uint8_t byte = *in->at++; /* most of them */
    *found = (byte >> 1) ^ -(byte & 1);
    return 0;
}

static inline int read_number(cursor *in, int bits, int64_t *found) {
    int reason = read_long(in, found);
    if (reason || bits == 64) return reason;
    return *found < INT32_MIN || *found > INT32_MAX ? REASON_NUMBER : 0;
}

static int read_length(cursor *in, int64_t *length) {
    int reason = read_long(in, length);
    if (reason) return reason;
    return *length < 0 || *length > in->end - in->at ? REASON_LENGTH : 0;
}

/* Pass over so many bytes and return where they begin; NULL if they are not there. */
static const uint8_t *read_fixed(cursor *in, int64_t size) {
    if (size > in->end - in->at) return NULL;
    const uint8_t *start = in->at;
    in->at += size;
    return start;
}

static int read_index(cursor *in, int32_t count, int64_t *index) {
    int reason = read_long(in, index);
    if (reason) return reason;
    return *index < 0 || *index >= count ? REASON_INDEX : 0;
}

/* --- values of slots -------------------------------------------------------------- */

static int put_number(avro_slot *slot, const void *number, size_t size) {
    slots_result result;
    void *place = slot_number(slot, &result);
    if (place) memcpy(place, number, size);
    return result;
}

static int add_boolean(cursor *in, avro_slot *slot) {
    const uint8_t *byte = read_fixed(in, 1);
    if (!byte) return REASON_CUT;
    return *byte > 1 ? REASON_BOOLEAN : slot_boolean(slot, *byte);
}

static int add_int(cursor *in, avro_slot *slot) {
    int64_t found;
    int reason = read_number(in, 32, &found);
    int32_t number = reason ? 0 : (int32_t)found;
    return reason ? reason : put_number(slot, &number, sizeof number);
}

/* In another unit; below 0 the unit is smaller. */
static int scaled(int64_t found, int64_t factor, int64_t *number) {
    if (factor > 0) return __builtin_mul_overflow(found, factor, number);
    int64_t divisor = -factor;
    *number = found / divisor - (found % divisor < 0);
    return 0;
}

static int add_long(cursor *in, avro_slot *slot, int32_t bits, int32_t factor) {
    int64_t number;
    int reason = read_number(in, bits, &number);
    if (reason) return reason;
    if (factor != 1 && scaled(number, factor, &number)) return REASON_TIME;
    return put_number(slot, &number, sizeof number);
}

static int add_long_as_float(cursor *in, avro_slot *slot, int32_t bits) {
    int64_t found;
    int reason = read_number(in, bits, &found);
    float number = reason ? 0 : (float)found;
    return reason ? reason : put_number(slot, &number, sizeof number);
}

static int add_long_as_double(cursor *in, avro_slot *slot, int32_t bits) {
    int64_t found;
    int reason = read_number(in, bits, &found);
    double number = reason ? 0 : (double)found;
    return reason ? reason : put_number(slot, &number, sizeof number);
}

static uint64_t little_endian(const uint8_t *bytes, int size) {
    uint64_t number = 0;
    while (size--)
        number = number << 8 | bytes[size];
    return number;
}

static int add_float(cursor *in, avro_slot *slot) {
    const uint8_t *bytes = read_fixed(in, 4);
    uint32_t number = bytes ? (uint32_t)little_endian(bytes, 4) : 0;
    return bytes ? put_number(slot, &number, sizeof number) : REASON_CUT;
}

static int add_double(cursor *in, avro_slot *slot) {
    const uint8_t *bytes = read_fixed(in, 8);
    uint64_t number = bytes ? little_endian(bytes, 8) : 0;
    return bytes ? put_number(slot, &number, sizeof number) : REASON_CUT;
}

static int add_float_as_double(cursor *in, avro_slot *slot) {
    const uint8_t *bytes = read_fixed(in, 4);
    if (!bytes) return REASON_CUT;
    uint32_t number = (uint32_t)little_endian(bytes, 4);
    float narrow;
    memcpy(&narrow, &number, sizeof narrow);
    double wide = narrow;
    return put_number(slot, &wide, sizeof wide);
}

static int add_bytes(cursor *in, avro_slot *slot, int is_text) {
    int64_t size;
    int reason = read_length(in, &size);
    if (reason) return reason;
    const uint8_t *bytes = read_fixed(in, size);
    if (is_text && !utf8_is_valid(bytes, (size_t)size)) return REASON_TEXT;
    return slot_bytes(slot, bytes, size);
}

static int add_fixed(cursor *in, avro_slot *slot, int32_t size) {
    const uint8_t *bytes = read_fixed(in, size);
    return bytes ? slot_bytes(slot, bytes, size) : REASON_CUT;
}

static int add_symbol(machine *m, cursor *in, avro_slot *slot, const int32_t *operand) {
    int64_t index;
    int reason = read_index(in, operand[1], &index);
    if (reason) return reason;
    const int32_t *symbol = operand + 2 + 2 * index;
    if (symbol[1] < 0) {
        m->detail = symbol[0];
        return REASON_FAILED;
    }
    return slot_bytes(slot, m->program->constants + symbol[0], symbol[1]);
}

/* --- decimals --------------------------------------------------------------------- */

enum { DECIMAL_BYTES = 16 };

static __int128 power_of_ten(int exponent) {
    __int128 power = 1;
    while (exponent--)
        power *= 10;
    return power;
}

/* Two's complement, the highest byte first; more bytes than fit have to be its sign. */
static int read_decimal(const uint8_t *bytes, int64_t size, __int128 *number) {
    uint8_t sign = size && bytes[0] & 0x80 ? 0xFF : 0;
    while (size > DECIMAL_BYTES) {
        if (*bytes != sign) return REASON_DIGITS;
        bytes++;
        size--;
    }
    if (size && ((*bytes ^ sign) & 0x80)) return REASON_DIGITS;
    unsigned __int128 found = sign ? ~(unsigned __int128)0 : 0;
    while (size--)
        found = found << 8 | *bytes++;
    *number = (__int128)found;
    return 0;
}

static int add_decimal(avro_slot *slot, const uint8_t *bytes, int64_t size,
                       int32_t precision) {
    __int128 number, beyond = power_of_ten(precision);
    int reason = read_decimal(bytes, size, &number);
    if (reason || number <= -beyond || number >= beyond) return REASON_DIGITS;
    return put_number(slot, &number, sizeof number);
}

static int add_var_decimal(cursor *in, avro_slot *slot, int32_t precision) {
    int64_t size;
    int reason = read_length(in, &size);
    return reason ? reason : add_decimal(slot, read_fixed(in, size), size, precision);
}

static int add_fixed_decimal(cursor *in, avro_slot *slot, const int32_t *operand) {
    const uint8_t *bytes = read_fixed(in, operand[2]);
    return bytes ? add_decimal(slot, bytes, operand[2], operand[1]) : REASON_CUT;
}

/* --- blocks ----------------------------------------------------------------------- */

/* Run the words from `at` to `end`. */
static int run(machine *m, cursor *in, int32_t at, int32_t end);

/* What repeats: its words, the least bytes of an item, and the slot of its keys. */
typedef struct {
    int32_t at, end, least, width; /* of an item; 0: it is passed over */
    int has_keys;
    avro_slot *keys; /* NULL: they are passed over */
} blocks;

/* The count of the next block; 0: the last one was before. `*size` below 0: not told. */
static int read_count(cursor *in, uint64_t *count, int64_t *size) {
    int64_t found;
    int reason = read_long(in, &found);
    *size = -1;
    if (reason) return reason;
    *count = found < 0 ? 0 - (uint64_t)found : (uint64_t)found;
    return found < 0 ? read_length(in, size) : 0;
}

static int check_count(cursor *in, uint64_t count, int32_t least) {
    if (least)
        return count > (uint64_t)(in->end - in->at) / (uint64_t)least ? REASON_LENGTH : 0;
    in->empty += count;
    return in->empty > MOST_EMPTY_ITEMS ? REASON_EMPTY_ITEMS : 0;
}

static int charge(machine *m, uint64_t count, uint64_t width) {
    uint64_t cost;
    if (__builtin_mul_overflow(count, width, &cost) || cost > m->allowed)
        return REASON_AMPLIFIED;
    m->allowed -= cost;
    return 0;
}

static int skip_bytes(cursor *in) {
    int64_t size;
    int reason = read_length(in, &size);
    if (!reason) in->at += size;
    return reason;
}

static int run_items(machine *m, cursor *in, const blocks *b, uint64_t count) {
    int reason = check_count(in, count, b->least);
    if (!reason) reason = charge(m, count, (uint64_t)b->width);
    while (count-- && !reason) {
        if (b->has_keys) reason = b->keys ? add_bytes(in, b->keys, 1) : skip_bytes(in);
        if (!reason) reason = run(m, in, b->at, b->end);
    }
    return reason;
}

static int run_blocks(machine *m, cursor *in, const blocks *b, avro_slot *slot) {
    uint64_t count, total = 0;
    int64_t size;
    int reason;
    while (!(reason = read_count(in, &count, &size)) && count) {
        reason = run_items(m, in, b, count);
        if (reason) return reason;
        total += count;
    }
    return reason ? reason : slot_items(slot, (int64_t)total);
}

static int skip_blocks(machine *m, cursor *in, const blocks *b) {
    uint64_t count;
    int64_t size;
    int reason;
    while (!(reason = read_count(in, &count, &size)) && count) {
        if (size >= 0)
            in->at += size;
        else if ((reason = run_items(m, in, b, count)))
            return reason;
    }
    return reason;
}

static int run_default(machine *m, const int32_t *word, int32_t body) {
    if (charge(m, 1, (uint64_t)word[2])) return REASON_AMPLIFIED;
    const uint8_t *given = m->program->constants + word[1];
    cursor in = {given, given + word[2], 0};
    return run(m, &in, body, word[3]);
}

/* --- instructions ----------------------------------------------------------------- */

/* What reads a value into a slot, the first operand; 0 or why there is none. */
static int add_value(machine *m, cursor *in, const int32_t *word) {
    avro_slot *slot = &m->slots->all[word[1]];
    switch (*word) {
    case OP_NULL: return slots_null(m->slots, word[1]);
    case OP_BOOLEAN: return add_boolean(in, slot);
    case OP_INT: return add_int(in, slot);
    case OP_LONG: return add_long(in, slot, word[2], word[3]);
    case OP_FLOAT: return add_float(in, slot);
    case OP_DOUBLE: return add_double(in, slot);
    case OP_FLOAT_TO_DOUBLE: return add_float_as_double(in, slot);
    case OP_LONG_TO_FLOAT: return add_long_as_float(in, slot, word[2]);
    case OP_LONG_TO_DOUBLE: return add_long_as_double(in, slot, word[2]);
    case OP_BYTES: return add_bytes(in, slot, 0);
    case OP_TEXT: return add_bytes(in, slot, 1);
    case OP_FIXED: return add_fixed(in, slot, word[2]);
    case OP_DECIMAL: return add_var_decimal(in, slot, word[2]);
    case OP_FIXED_DECIMAL: return add_fixed_decimal(in, slot, word + 1);
    case OP_ENUM: return add_symbol(m, in, slot, word + 1);
    default: return slot_struct(slot); /* OP_RECORD */
    }
}

/* Words of the instructions above, which have no targets. */
static int32_t words_of(const int32_t *word) {
    switch (*word) {
    case OP_LONG:
    case OP_FIXED_DECIMAL: return 4;
    case OP_LONG_TO_FLOAT:
    case OP_LONG_TO_DOUBLE:
    case OP_FIXED:
    case OP_DECIMAL: return 3;
    case OP_ENUM: return 3 + 2 * word[2];
    default: return 2;
    }
}

static int run_array(machine *m, cursor *in, const int32_t *word, int32_t at) {
    avro_slot *slot = &m->slots->all[word[1]];
    blocks b = {at + 4, word[2], word[3], slot[1].width, 0, NULL};
    return run_blocks(m, in, &b, slot);
}

static int run_map(machine *m, cursor *in, const int32_t *word, int32_t at) {
    avro_slot *slot = &m->slots->all[word[1]];
    blocks b = {at + 3, word[2], 1, 1 + slot[2].width, 1, slot + 1};
    return run_blocks(m, in, &b, slot);
}

static int skip_repeated(machine *m, cursor *in, const int32_t *word, int32_t at) {
    blocks b = {at + 4, word[1], word[2], 0, word[3], NULL};
    return skip_blocks(m, in, &b);
}

static int skip_fixed(cursor *in, int32_t size) {
    return read_fixed(in, size) ? 0 : REASON_CUT;
}

static int choose(cursor *in, const int32_t *word, int32_t *at) {
    int64_t index;
    int reason = read_index(in, word[1], &index);
    if (!reason) *at = word[2 + index];
    return reason;
}

static int run(machine *m, cursor *in, int32_t at, int32_t end) {
    int reason = 0;
    while (at < end && !reason) {
        const int32_t *word = m->program->code + at;
        switch (*word) {
        case OP_JUMP: at = word[1]; break;
        case OP_FAIL: m->detail = word[1]; return REASON_FAILED;
        case OP_UNION: reason = choose(in, word, &at); break;
        case OP_ARRAY: reason = run_array(m, in, word, at), at = word[2]; break;
        case OP_MAP: reason = run_map(m, in, word, at), at = word[2]; break;
        case OP_DEFAULT: reason = run_default(m, word, at + 4), at = word[3]; break;
        case OP_SKIP_LONG: {
            int64_t passed;
            reason = read_long(in, &passed), at++;
            break;
        }
        case OP_SKIP_FIXED: reason = skip_fixed(in, word[1]), at += 2; break;
        case OP_SKIP_BYTES: reason = skip_bytes(in), at++; break;
        case OP_SKIP_BLOCKS: reason = skip_repeated(m, in, word, at), at = word[1]; break;
        default: reason = add_value(m, in, word), at += words_of(word);
        }
    }
    return reason;
}

int avro_decode(const avro_program *program, avro_slots *slots, const uint8_t *bytes,
                size_t size, int32_t *detail) {
    machine m = {program, slots, 0, FREE_VALUES + VALUES_OF_A_BYTE * (uint64_t)size};
    cursor in = {bytes, bytes + size, 0};
    int64_t rows = slots->all[0].rows;
    int reason = run(&m, &in, 0, (int32_t)program->words - 1);
    if (!reason && in.at != in.end) reason = REASON_TRAILING;
    *detail = m.detail;
    if (!reason && slots->all[0].rows != rows + 1) return SLOTS_WRONG;
    if (reason > 0) slots_cut(slots, rows);
    return reason;
}
