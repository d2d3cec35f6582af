/* Asking the leaders of many partitions for offsets, one request for each broker.
 *
 * librdkafka sends and reads the requests in its own threads; what is asked in several
 * of these is on its way at the same time. */
#ifndef KAFKA_TX_OFFSETS_H
#define KAFKA_TX_OFFSETS_H

#include "client.h"

enum { NOT_ANSWERED = -1001 };

typedef struct {
    const char *topic; /* borrowed until the request is closed */
    int32_t partition;
    int64_t wanted;       /* a time in ms, or RDK_OFFSET_… */
    int64_t offset;       /* or NOT_ANSWERED; -1: no record is as late as that time */
    int32_t leader_epoch; /* -1: not told */
    int err;              /* of this partition, or 0 */
    void *owner;          /* whatever the caller likes */
    size_t place;         /* and where it stood before it was sorted */
} asked_offset;

typedef struct {
    client *client;
    asked_offset *asked; /* the caller's; sorted by offsets_ask() */
    size_t count;
    rdk_queue *answers; /* NULL once it was answered */
    int err;            /* of the whole request, or 0 */
    char text[256];     /* what it was */
} offset_request;

/* Send a request for these partitions, each of them once. `is_committed`: ends are the
 * last stable offsets. The client's own work grows with the square of `count`. */
void offsets_ask(offset_request *, client *, asked_offset *, size_t count,
                 int is_committed, int timeout_ms);

/* Wait for the answer and put it into what was asked; 1 once it is there, 0 where it
 * is not yet. */
int offsets_wait(offset_request *, int wait_ms);

/* Harmless at any time, also without an answer. */
void offsets_close(offset_request *);

#endif
