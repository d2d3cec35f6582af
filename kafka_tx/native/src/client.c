#include "client.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static rdk_conf *make_conf(client *c, const char *const *settings,
                           range_failure *failure) {
    rdk_conf *conf = c->rdk->conf_new();
    char why[sizeof failure->text] = "";
    for (; *settings; settings += 2)
        if (c->rdk->conf_set(conf, settings[0], settings[1], why, sizeof why)) {
            c->rdk->conf_destroy(conf);
            failure_set(failure, FAILURE_SETTINGS, 0, why);
            return NULL;
        }
    c->rdk->conf_set_opaque(conf, &c->watch);
    c->rdk->conf_set(conf, "log.queue", "true", NULL, 0);
    c->rdk->conf_set_error_cb(conf, watch_error);
    c->rdk->conf_set_stats_cb(conf, watch_statistics);
    return conf;
}

static int start(client *c, const char *const *settings, range_failure *failure) {
    char why[sizeof failure->text] = "";
    rdk_conf *conf = make_conf(c, settings, failure);
    if (!conf) return -1;
    c->handle = c->rdk->new(RDK_CONSUMER, conf, why, sizeof why);
    if (!c->handle) {
        c->rdk->conf_destroy(conf); /* a client that exists owns it */
        failure_set(failure, FAILURE_SETTINGS, 0, why);
        return -1;
    }
    c->logs = c->rdk->queue_new(c->handle);
    int code = c->rdk->set_log_queue(c->handle, c->logs);
    if (code) failure_set(failure, FAILURE_FETCH, code, c->rdk->err2str(code));
    return code ? -1 : 0;
}

client *client_open(const rdk_api *rdk, const char *const *settings,
                    range_failure *failure) {
    client *c = calloc(1, sizeof *c);
    if (!c) {
        failure_set(failure, FAILURE_MEMORY, 0, "no memory for a client");
        return NULL;
    }
    c->rdk = rdk;
    c->made_by = getpid();
    c->watch.fetched_to = UNKNOWN_OFFSET;
    if (start(c, settings, failure)) {
        client_close(c);
        return NULL;
    }
    return c;
}

void client_listen(client *c) {
    c->rdk->poll(c->handle, 0);
    rdk_event *event;
    while ((event = c->rdk->queue_poll(c->logs, 0))) {
        const char *facility, *line;
        int level;
        if (!c->rdk->event_log(event, &facility, &line, &level))
            watch_log(&c->watch, facility, line);
        c->rdk->event_destroy(event);
    }
}

int client_bounds(client *c, const char *topic, int32_t partition, int timeout_ms,
                  int64_t *log_start, int64_t *log_end) {
    int code = c->rdk->query_watermark_offsets(c->handle, topic, partition, log_start,
                                               log_end, timeout_ms);
    return code || *log_start < 0 || *log_end < 0 ? -1 : 0;
}

const rdk_metadata *client_describe(client *c, const char *topic, int timeout_ms) {
    const rdk_metadata *found = NULL;
    rdk_topic *handle = c->rdk->topic_new(c->handle, topic, NULL);
    if (!handle) return NULL;
    int code = c->rdk->metadata(c->handle, 0, handle, &found, timeout_ms);
    c->rdk->topic_destroy(handle);
    if (code) return NULL;
    if (found->topic_count == 1 && !found->topics[0].err) return found;
    c->rdk->metadata_destroy(found);
    return NULL;
}

int client_learn(client *c, const char *topic, int timeout_ms) {
    const rdk_metadata *found = NULL;
    rdk_topic *handle = topic ? c->rdk->topic_new(c->handle, topic, NULL) : NULL;
    if (topic && !handle) return -1;
    int code = c->rdk->metadata(c->handle, !topic, handle, &found, timeout_ms);
    if (handle) c->rdk->topic_destroy(handle);
    if (code) return -1;
    if (topic && found->topic_count == 1) code = found->topics[0].err;
    c->rdk->metadata_destroy(found);
    return code ? -1 : 0;
}

static void *close_now(void *given) {
    client *c = given;
    if (c->logs) c->rdk->queue_destroy(c->logs);
    if (c->handle) c->rdk->destroy_flags(c->handle, RDK_DESTROY_NO_CONSUMER_CLOSE);
    free(c);
    return NULL;
}

/* librdkafka 2.16 looks for another offset behind damaged records. A client that is
 * closed at that moment locks a partition twice in the same thread, and never ends. */
void client_close(client *c) {
    pthread_t waiting;
    if (c->made_by != getpid()) return;
    if (c->may_hang && !pthread_create(&waiting, NULL, close_now, c))
        pthread_detach(waiting);
    else
        close_now(c);
}
