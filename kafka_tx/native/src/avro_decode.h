/* Runs programs over the bytes of records. */
#ifndef KAFKA_TX_AVRO_DECODE_H
#define KAFKA_TX_AVRO_DECODE_H

#include "avro_program.h"

/* As program.Reason. */
typedef enum {
    REASON_CUT = 1,
    REASON_TRAILING,
    REASON_NUMBER,
    REASON_TEXT,
    REASON_LENGTH,
    REASON_BOOLEAN,
    REASON_INDEX,
    REASON_DIGITS,
    REASON_TIME,
    REASON_EMPTY_ITEMS,
    REASON_FAILED,
    REASON_AMPLIFIED,
} avro_reason;

/* Append a record to the slots. Positive: an avro_reason, with its detail, and nothing
 * was appended; negative: a slots_result, and the column is lost. */
int avro_decode(const avro_program *program, avro_slots *slots, const uint8_t *bytes,
                size_t size, int32_t *detail);

#endif
