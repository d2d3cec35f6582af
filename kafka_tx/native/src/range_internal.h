/* What range.c makes and the others use. */
#ifndef KAFKA_TX_RANGE_INTERNAL_H
#define KAFKA_TX_RANGE_INTERNAL_H

#include "columns.h"
#include "range.h"

enum { NEVER = -1 };

struct range {
    const rdk_api *rdk;
    client *client;
    /* The client read another before. Its positions and statistics may still be of that
     * one, so only records are believed, from the range's start on without a hole.
     * Whatever else happens is FAILURE_STALE: let a new client find out what it means.
     */
    int is_reused;
    rdk_topic *topic;
    rdk_queue *queue; /* of records and events of the partition */
    char *topic_name;
    int32_t partition;
    int is_started;
    int64_t end;
    int32_t leader_epoch; /* records of later ones are others than wanted; or -1 */
    int64_t batch_bytes;
    int64_t timeout_ms;
    int64_t grace_ms;

    int64_t position;  /* next offset: everything below was delivered or is a hole */
    int is_at_log_end; /* as far as the client has heard */
    int64_t waiting_since_ms; /* NEVER while there is progress */
    int64_t partial;          /* the client's count then */
    int64_t asked_ms;         /* when brokers were last asked why nothing comes */
    int64_t record_bytes;     /* of the records so far, a moving average */
    columns columns;
    rdk_message *held[RANGE_HELD]; /* taken from the queue; held[at] is the next */
    size_t held_count, held_at;

    range_failure failure; /* kept until the records before it went out */
};

/* Keep why the range failed; RANGE_FAILED. */
static inline range_state range_fail(range *r, failure_kind kind, int code,
                                     const char *text) {
    int is_certain = kind == FAILURE_MEMORY || kind == FAILURE_RECORD ||
                     kind == FAILURE_REPLACED;
    if (r->is_reused && !is_certain) kind = FAILURE_STALE;
    failure_set(&r->failure, kind, code, text);
    r->failure.position = r->position;
    return RANGE_FAILED;
}

/* End the fetching. */
void range_stop(range *r);

/* Destroy the next of the messages that are held. */
static inline void drop_held(range *r) {
    r->rdk->message_destroy(r->held[r->held_at++]);
}

#endif
