#include "avro_program.h"

#include <stdlib.h>

enum { VARIES = 100, ANY = SLOT_KINDS, NONE, DEEPEST_BODY = 256, MOST_DIGITS = 38 };

/* Of each instruction: its operands, and the kind of the slot that is the first of them. */
static const struct {
    uint8_t operands, kind;
} FORMS[OPS] = {
    [OP_END] = {0, NONE},
    [OP_JUMP] = {1, NONE},
    [OP_FAIL] = {1, NONE},
    [OP_NULL] = {1, ANY},
    [OP_BOOLEAN] = {1, SLOT_BOOLEAN},
    [OP_INT] = {1, SLOT_INT32},
    [OP_LONG] = {3, SLOT_INT64},
    [OP_FLOAT] = {1, SLOT_FLOAT},
    [OP_DOUBLE] = {1, SLOT_DOUBLE},
    [OP_FLOAT_TO_DOUBLE] = {1, SLOT_DOUBLE},
    [OP_LONG_TO_FLOAT] = {2, SLOT_FLOAT},
    [OP_LONG_TO_DOUBLE] = {2, SLOT_DOUBLE},
    [OP_BYTES] = {1, SLOT_BINARY},
    [OP_TEXT] = {1, SLOT_TEXT},
    [OP_FIXED] = {2, SLOT_BINARY},
    [OP_DECIMAL] = {2, SLOT_DECIMAL},
    [OP_FIXED_DECIMAL] = {3, SLOT_DECIMAL},
    [OP_ENUM] = {VARIES, SLOT_TEXT},
    [OP_UNION] = {VARIES, NONE},
    [OP_RECORD] = {1, SLOT_STRUCT},
    [OP_ARRAY] = {3, SLOT_LIST},
    [OP_MAP] = {2, SLOT_MAP},
    [OP_DEFAULT] = {3, NONE},
    [OP_SKIP_LONG] = {0, NONE},
    [OP_SKIP_FIXED] = {1, NONE},
    [OP_SKIP_BYTES] = {0, NONE},
    [OP_SKIP_BLOCKS] = {3, NONE},
};

/* The operands of the instruction at `at`, or more than there are words. */
static size_t operands(const avro_program *program, size_t at) {
    const int32_t *word = program->code + at;
    size_t left = program->words - at - 1, fixed, each;
    switch (*word) {
    case OP_ENUM: fixed = 2, each = 2; break;
    case OP_UNION: fixed = 1, each = 1; break;
    default: return FORMS[*word].operands;
    }
    if (left < fixed || word[fixed] < 1) return SIZE_MAX;
    return fixed + each * (size_t)word[fixed];
}

static int is_constant(const avro_program *program, int32_t offset, int32_t size) {
    return offset >= 0 && size >= 0 &&
           (uint64_t)offset + (uint64_t)size <= program->constant_bytes;
}

static int is_slot(const avro_slots *slots, int32_t number, uint8_t kind) {
    if (number < 0 || number >= slots->count) return 0;
    return kind == ANY || slots->all[number].kind == kind;
}

static int are_symbols(const avro_program *program, const int32_t *operand) {
    const int32_t *symbol = operand + 2;
    for (int32_t i = 0; i < operand[1]; i++, symbol += 2)
        if (symbol[1] != -1 && !is_constant(program, symbol[0], symbol[1])) return 0;
    return 1;
}

/* Operands that are neither slots nor targets. */
static int are_legal(const avro_program *program, int32_t op, const int32_t *operand) {
    switch (op) {
    case OP_LONG: return (operand[1] == 32 || operand[1] == 64) && operand[2];
    case OP_LONG_TO_FLOAT:
    case OP_LONG_TO_DOUBLE: return operand[1] == 32 || operand[1] == 64;
    case OP_FIXED: return operand[1] >= 0;
    case OP_FIXED_DECIMAL:
        if (operand[2] < 0) return 0;
        __attribute__((fallthrough));
    case OP_DECIMAL: return operand[1] >= 1 && operand[1] <= MOST_DIGITS;
    case OP_ENUM: return are_symbols(program, operand);
    case OP_ARRAY: return operand[2] >= 0;
    case OP_DEFAULT: return is_constant(program, operand[0], operand[1]);
    case OP_SKIP_FIXED: return operand[0] >= 0;
    case OP_SKIP_BLOCKS: return operand[1] >= 0;
    default: return 1;
    }
}

/* The first target of an instruction, and how many follow each other. */
static const int32_t *targets(const int32_t *word, int32_t *count) {
    *count = 1;
    switch (*word) {
    case OP_JUMP: return word + 1;
    case OP_ARRAY:
    case OP_MAP: return word + 2;
    case OP_DEFAULT: return word + 3;
    case OP_SKIP_BLOCKS: return word + 1;
    case OP_UNION: *count = word[1]; return word + 2;
    default: *count = 0; return word;
    }
}

/* Mark where instructions begin; the last one, and no other, is the end. */
static int mark_all(const avro_program *program, const avro_slots *slots,
                    uint8_t *begins) {
    size_t at = 0;
    while (at < program->words) {
        const int32_t *word = program->code + at;
        if (*word < 0 || *word >= OPS) return 0;
        size_t count = operands(program, at);
        if (count > program->words - at - 1) return 0;
        uint8_t kind = FORMS[*word].kind;
        if (kind != NONE && !is_slot(slots, word[1], kind)) return 0;
        if (!are_legal(program, *word, word + 1)) return 0;
        if ((*word == OP_END) != (at == program->words - 1)) return 0;
        begins[at] = 1;
        at += 1 + count;
    }
    return 1;
}

/* Each target is an instruction further on. */
static int are_ahead(const avro_program *program, const uint8_t *begins, size_t at) {
    int32_t count;
    const int32_t *target = targets(program->code + at, &count);
    for (; count--; target++)
        if (*target <= (int64_t)at || (size_t)*target >= program->words ||
            !begins[*target])
            return 0;
    return 1;
}

/* Bodies are in each other where they end in each other; `ends` are the open ones. */
static int are_shallow(const avro_program *program, const uint8_t *begins) {
    int32_t ends[DEEPEST_BODY];
    int depth = 0;
    for (size_t at = 0; at < program->words; at++) {
        if (!begins[at]) continue;
        const int32_t *word = program->code + at;
        while (depth && ends[depth - 1] <= (int64_t)at)
            depth--;
        if (*word < OP_ARRAY || *word == OP_SKIP_LONG || *word == OP_SKIP_FIXED ||
            *word == OP_SKIP_BYTES)
            continue;
        int32_t count, end = *targets(word, &count);
        if (depth == DEEPEST_BODY || (depth && end > ends[depth - 1])) return 0;
        ends[depth++] = end;
    }
    return 1;
}

slots_result avro_check(const avro_program *program, const avro_slots *slots) {
    if (!program->words || program->words > INT32_MAX) return SLOTS_WRONG;
    uint8_t *begins = calloc(program->words, 1);
    if (!begins) return SLOTS_NO_MEMORY;
    int is_right = mark_all(program, slots, begins);
    for (size_t at = 0; at < program->words && is_right; at++)
        if (begins[at]) is_right = are_ahead(program, begins, at);
    is_right = is_right && are_shallow(program, begins);
    free(begins);
    return is_right ? SLOTS_OK : SLOTS_WRONG;
}
