/* Why a range could not be read. */
#ifndef KAFKA_TX_FAILURE_H
#define KAFKA_TX_FAILURE_H

#include <stdint.h>

enum { UNKNOWN_OFFSET = -1 };

typedef enum {
    FAILURE_NONE = 0,
    FAILURE_SETTINGS,     /* librdkafka refused a setting */
    FAILURE_MEMORY,       /* no memory for a batch */
    FAILURE_RECORD,       /* the record at `position` does not fit into the columns */
    FAILURE_OUT_OF_RANGE, /* the log is [log_start, log_end) and lacks what is wanted */
    FAILURE_REPLACED,     /* at `log_end` is a record of a later leader epoch */
    FAILURE_DENIED,       /* credentials, permission or TLS */
    FAILURE_UNKNOWN_TOPIC, /* or partition */
    FAILURE_TIMED_OUT,     /* no progress; the text is the last error seen, if any */
    FAILURE_FETCH,         /* anything else that librdkafka gave up on */
    FAILURE_STALE          /* a client that was used before, and it may be due to that:
                            * go on at `position` with a new one */
} failure_kind;

typedef struct {
    failure_kind kind;
    int code;          /* librdkafka's; 0 where it had no part */
    int64_t position;  /* the next offset that was wanted */
    int64_t log_start; /* or UNKNOWN_OFFSET */
    int64_t log_end;   /* or UNKNOWN_OFFSET */
    char text[512];
} range_failure;

/* Set all of it; offsets are unknown. */
void failure_set(range_failure *, failure_kind, int code, const char *text);

/* What an error of a partition means; FAILURE_NONE where it may pass. */
failure_kind kind_of_event(int code);

#endif
