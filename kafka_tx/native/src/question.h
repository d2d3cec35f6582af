/* Asking brokers why nothing comes: librdkafka itself keeps silent about it. */
#ifndef KAFKA_TX_QUESTION_H
#define KAFKA_TX_QUESTION_H

#include "range.h"

/* What the log holds now, [log_start, log_end); UNKNOWN_OFFSET where no broker tells.
 */
void ask_bounds(range *, int64_t *log_start, int64_t *log_end);

/* Is there such a partition, may it be read, does it hold the range? RANGE_FAILED if
 * not; RANGE_WAITING if so, or if no broker tells. Blocks for at most two answers. */
range_state ask_why(range *);

#endif
