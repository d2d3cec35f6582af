/* The instructions that make a reader's value of a writer's bytes.
 *
 * They are described in schemas/program.py, instruction by instruction, with the rules
 * of decoders.
 */
#ifndef KAFKA_TX_AVRO_PROGRAM_H
#define KAFKA_TX_AVRO_PROGRAM_H

#include "avro_slots.h"

/* As program.Op. */
typedef enum {
    OP_END,
    OP_JUMP,
    OP_FAIL,
    OP_NULL,
    OP_BOOLEAN,
    OP_INT,
    OP_LONG,
    OP_FLOAT,
    OP_DOUBLE,
    OP_FLOAT_TO_DOUBLE,
    OP_LONG_TO_FLOAT,
    OP_LONG_TO_DOUBLE,
    OP_BYTES,
    OP_TEXT,
    OP_FIXED,
    OP_DECIMAL,
    OP_FIXED_DECIMAL,
    OP_ENUM,
    OP_UNION,
    OP_RECORD,
    OP_ARRAY,
    OP_MAP,
    OP_DEFAULT,
    OP_SKIP_LONG,
    OP_SKIP_FIXED,
    OP_SKIP_BYTES,
    OP_SKIP_BLOCKS,
    OPS
} avro_op;

typedef struct {
    const int32_t *code;
    size_t words;
    const uint8_t *constants;
    size_t constant_bytes;
} avro_program;

/* Words and slots that do not exist, a jump back, bodies too deep: SLOTS_WRONG. What
 * passes can be run over any bytes. */
slots_result avro_check(const avro_program *program, const avro_slots *slots);

#endif
