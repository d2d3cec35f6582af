/* One offset range of one partition, read to its end.
 *
 * Knows nothing of Python: everything here may run without the interpreter's lock.
 * A range is used by one thread at a time.
 *
 * Life of a range:
 *  1. range_open starts fetching at `start` with a client that no other range uses.
 *  2. range_next fills a batch; called again and again until it says RANGE_DONE or
 *     RANGE_FAILED. It waits at most RANGE_SLICE_MS before it says RANGE_WAITING, so
 * that the caller can look for signals.
 *  3. range_close ends the fetching, at any point of this. The client stays.
 *
 * Memory: what librdkafka prefetches (queued.max.messages.kbytes), one batch of at most
 * `batch_bytes` or one record, and at most RANGE_HELD records taken from the queue and
 * not yet copied, which together are no more than about one batch.
 */
#ifndef KAFKA_TX_RANGE_H
#define KAFKA_TX_RANGE_H

#include <stdint.h>

#include "arrow_c_data.h"
#include "client.h"
#include "failure.h"

enum { RANGE_SLICE_MS = 50, RANGE_HELD = 2048 };

typedef struct range range;

typedef struct {
    const char *topic;
    int32_t partition;
    int64_t start;
    int64_t end;
    int32_t leader_epoch; /* that the end was planned under; -1: not known */
    int has_headers;
    int64_t batch_bytes; /* 1 .. 1 << 30 */
    int64_t timeout_ms;  /* longest time without progress */
    int64_t grace_ms;    /* how long brokers may deny a partition or its end: a new
                          * leader learns of them late */
} range_request;

typedef enum { RANGE_BATCH, RANGE_WAITING, RANGE_DONE, RANGE_FAILED } range_state;

/* The client has to outlive the range. Returns NULL and fills `failure` where fetching
 * cannot begin. */
range *range_open(client *, const range_request *, range_failure *failure);

/* RANGE_BATCH fills `batch`, RANGE_FAILED fills `failure`: only after the records
 * before it went out, and from then on every time. */
range_state range_next(range *, struct ArrowArray *batch, range_failure *failure);

/* Blocks until librdkafka has heard of it. */
void range_close(range *);

#endif
