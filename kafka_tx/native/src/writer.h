/* A librdkafka producer: columns in, and what became of the records out.
 *
 * One thread uses it at a time. Everything is told inside its own calls. */
#ifndef KAFKA_TX_WRITER_H
#define KAFKA_TX_WRITER_H

#include <sys/types.h>

#include "failure.h"
#include "outgoing.h"
#include "rdkafka_api.h"

/* What was told of one record; also owns what it points to. */
typedef struct told_record {
    struct told_record *next;
    int code; /* 0: delivered */
    int32_t partition;
    int64_t timestamp_ms; /* as it was given; 0: none */
    const char *text; /* of the error */
    const char *topic;
    out_bytes key, value; /* the value of a record that failed alone has only a size */
    rdk_headers *headers; /* NULL: none */
} told_record;

/* An error of the client, or a line of its log. */
typedef struct report {
    struct report *next;
    int is_line;
    int code; /* or the level of the line */
    char facility[32];
    char text[512];
} report;

typedef struct {
    const rdk_api *rdk;
    rdk_client *handle;
    pid_t made_by;      /* a fork has none of its threads */
    size_t always_fits; /* no key and value of together so many bytes are too large */
    int64_t narrow, window; /* most records on their way: at first, and now */
    int32_t partitions;     /* the highest number that was told, and one */
    const int *suspect; /* codes that a whole batch is refused with, 0 at the end */
    int is_noting;      /* a batch was refused: all that is told is noted */
    int has_no_memory;  /* something could not be noted */
    told_record *noted, **last_noted;
    told_record *worst; /* of the records that failed for another reason */
    report *reports, **last_report;
    int report_count;
} writer;

/* `settings`: name, value, name, value, …, NULL. `suspect` must stay. Returns NULL and
 * fills `failure` where the client cannot be made. */
writer *writer_open(const rdk_api *, const char *const *settings, const int *suspect,
                    range_failure *failure);

/* Hand over the rows from `*at` on, waiting `wait_ms` at most for room in the window or
 * the queue. `topics` has `topic_count` handles.
 *
 * Returns 0, with `*at` behind the last row that was handed over: there is no room, or
 * something to tell, or the caller should look for signals. Else the code with which
 * the client refuses row `*at`. */
int writer_send(writer *, const outgoing *, rdk_topic *const *topics,
                int64_t topic_count, int64_t *at, int wait_ms);

/* Hand over one record; 0 or a code. Takes `headers` over where it returns 0. */
int writer_produce(writer *, rdk_topic *, int32_t partition, out_bytes key,
                   out_bytes value, int64_t timestamp_ms, rdk_headers *headers);

/* Let an offset of a group without members be committed with the transaction. */
rdk_error *writer_send_offset(writer *, const char *group, const char *topic,
                              int32_t partition, int64_t offset, const char *metadata,
                              int timeout_ms);

static inline int writer_has_news(const writer *w) {
    return w->noted || w->worst || w->reports || w->has_no_memory;
}

void told_free(const rdk_api *, told_record *);

/* Free what was told and taken. Nothing is on its way: a refusal is over. */
void writer_forget(writer *);

/* Blocks until librdkafka's threads are gone; what is not delivered is dropped. Does
 * nothing in a fork. */
void writer_close(writer *);

#endif
