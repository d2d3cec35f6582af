/* Making a range's client and letting it go. */
#include "range.h"

#include <stdlib.h>
#include <string.h>

#include "range_internal.h"

static rdk_conf *make_conf(range *r, const char *const *settings,
                           range_failure *failure) {
    rdk_conf *conf = r->rdk->conf_new();
    char why[sizeof failure->text] = "";
    for (; *settings; settings += 2)
        if (r->rdk->conf_set(conf, settings[0], settings[1], why, sizeof why)) {
            r->rdk->conf_destroy(conf);
            failure_set(failure, FAILURE_SETTINGS, 0, why);
            return NULL;
        }
    r->rdk->conf_set_opaque(conf, &r->watch);
    r->rdk->conf_set(conf, "log.queue", "true", NULL, 0);
    r->rdk->conf_set_error_cb(conf, watch_error);
    r->rdk->conf_set_stats_cb(conf, watch_statistics);
    return conf;
}

static int start(range *r, const range_request *request, range_failure *failure) {
    char why[sizeof failure->text] = "";
    rdk_conf *conf = make_conf(r, request->settings, failure);
    if (!conf) return -1;
    r->client = r->rdk->new(RDK_CONSUMER, conf, why, sizeof why);
    if (!r->client) {
        r->rdk->conf_destroy(conf); /* a client that exists owns it */
        failure_set(failure, FAILURE_SETTINGS, 0, why);
        return -1;
    }
    r->logs = r->rdk->queue_new(r->client);
    r->queue = r->rdk->queue_new(r->client);
    r->topic = r->rdk->topic_new(r->client, r->topic_name, NULL);
    if (!r->topic || r->rdk->set_log_queue(r->client, r->logs) ||
        r->rdk->consume_start_queue(r->topic, r->partition, r->position, r->queue)) {
        int code = r->rdk->last_error();
        failure_set(failure, FAILURE_FETCH, code, r->rdk->err2str(code));
        return -1;
    }
    r->is_started = 1;
    return 0;
}

range *range_open(const rdk_api *rdk, const range_request *request,
                  range_failure *failure) {
    range *r = calloc(1, sizeof *r);
    if (r) r->topic_name = strdup(request->topic);
    if (!r || !r->topic_name) {
        free(r);
        failure_set(failure, FAILURE_MEMORY, 0, "no memory for a reader");
        return NULL;
    }
    r->rdk = rdk;
    r->partition = request->partition;
    r->position = request->start;
    r->end = request->end;
    r->batch_bytes = request->batch_bytes;
    r->timeout_ms = request->timeout_ms;
    r->grace_ms = request->grace_ms;
    r->waiting_since_ms = NEVER;
    r->watch.fetched_to = UNKNOWN_OFFSET;
    columns_init(&r->columns, r->topic_name, r->partition, request->has_headers);
    if (start(r, request, failure)) {
        range_close(r);
        return NULL;
    }
    return r;
}

void range_close(range *r) {
    while (r->held_at < r->held_count)
        drop_held(r);
    if (r->is_started) r->rdk->consume_stop(r->topic, r->partition);
    if (r->queue) r->rdk->queue_destroy(r->queue);
    if (r->logs) r->rdk->queue_destroy(r->logs);
    if (r->topic) r->rdk->topic_destroy(r->topic);
    if (r->client) r->rdk->destroy_flags(r->client, RDK_DESTROY_NO_CONSUMER_CLOSE);
    columns_free(&r->columns);
    free(r->topic_name);
    free(r);
}
