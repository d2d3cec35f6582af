/* What librdkafka reports beside the records while a range is read. */
#ifndef KAFKA_TX_WATCH_H
#define KAFKA_TX_WATCH_H

#include "rdkafka_api.h"

enum { WATCH_TEXT = 384 };

typedef struct {
    int denied_code;           /* credentials or TLS were refused for certain; else 0 */
    int doubtful;              /* refusals since the last answer that may be passing */
    int code;                  /* of the last error */
    char error[WATCH_TEXT];    /* its text */
    char trouble[WATCH_TEXT];  /* what is wrong with the partition, as far as known */
    char log_line[WATCH_TEXT]; /* the last failed connection in the log */
    int64_t fetched_to;        /* next offset to fetch, as its statistics tell it */
    int64_t partial;           /* batches of records that were not decoded to their end */
} watch;

/* An rdk_error_cb and an rdk_stats_cb whose opaque is a watch; rd_kafka_poll calls
 * them, in the thread that reads the range. What is fetched and shown to nobody, as
 * records of aborted transactions are, can be seen in the statistics only. */
void watch_error(rdk_client *, int code, const char *text, void *opaque);
int watch_statistics(rdk_client *, char *json, size_t size, void *opaque);

/* Take a line of the log: that a listener wants TLS can be seen there only. */
void watch_log(watch *, const char *facility, const char *line);

/* Note what is wrong with the partition while it may still get better. */
void watch_trouble(watch *, int code, const char *text);

/* A broker answered: what was reported before is over. */
void watch_answered(watch *);

/* The last report, clearest first; empty where there is none. */
const char *watch_reason(const watch *);

#endif
