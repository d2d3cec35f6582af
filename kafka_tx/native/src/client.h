/* A librdkafka consumer that reads one range after the other.
 *
 * It is used by one range at a time. What it was told while it read a range may still
 * come up in the next one: see `is_reused` in range_internal.h. */
#ifndef KAFKA_TX_CLIENT_H
#define KAFKA_TX_CLIENT_H

#include <sys/types.h>

#include "failure.h"
#include "rdkafka_api.h"
#include "watch.h"

typedef struct {
    const rdk_api *rdk;
    rdk_client *handle;
    rdk_queue *logs;
    pid_t made_by; /* a fork has none of its threads */
    int is_used;   /* a range was opened with it */
    watch watch;
} client;

/* `settings`: name, value, name, value, …, NULL. Returns NULL and fills `failure` where
 * the client cannot be made. */
client *client_open(const rdk_api *, const char *const *settings,
                    range_failure *failure);

/* Let librdkafka report to the watch what happened meanwhile. */
void client_listen(client *);

/* Log start and end of a partition, by `isolation.level`; -1 where nobody tells. */
int client_bounds(client *, const char *topic, int32_t partition, int timeout_ms,
                  int64_t *log_start, int64_t *log_end);

/* One topic and its partitions, for metadata_destroy(); NULL where nobody tells. */
const rdk_metadata *client_describe(client *, const char *topic, int timeout_ms);

/* Let librdkafka learn the leaders of a topic, NULL: of all; -1 where nobody tells. */
int client_learn(client *, const char *topic, int timeout_ms);

/* Blocks until librdkafka's threads are gone: a few milliseconds. If they are not after
 * five seconds, a thread of its own waits for them, and frees the client if they ever
 * end. Does nothing in another process than the one that opened it. */
void client_close(client *);

#endif
