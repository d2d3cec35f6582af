/* A check sum of records, which tells replays of other records from the same ones. */
#ifndef KAFKA_TX_CHECK_SUM_H
#define KAFKA_TX_CHECK_SUM_H

#include "outgoing.h"

/* The sum of all rows' CRC-32, each over all that a reader can see of the record: see
 * sinks/sink_parts.py. `topics`: names by index. */
uint64_t check_sums(const outgoing *, const out_bytes *topics);

#endif
