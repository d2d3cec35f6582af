/* Beginning to read a range and letting it go. */
#include "range.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "range_internal.h"

static int start(range *r, range_failure *failure) {
    rdk_client *handle = r->client->handle;
    r->queue = r->rdk->queue_new(handle);
    r->topic = r->rdk->topic_new(handle, r->topic_name, NULL);
    if (!r->topic ||
        r->rdk->consume_start_queue(r->topic, r->partition, r->position, r->queue)) {
        int code = r->rdk->last_error();
        range_fail(r, FAILURE_FETCH, code, r->rdk->err2str(code));
        *failure = r->failure;
        return -1;
    }
    r->is_started = 1;
    return 0;
}

/* What the client was told before concerned another range. */
static void forget(client *c) {
    client_listen(c);
    watch_answered(&c->watch);
    c->watch.fetched_to = UNKNOWN_OFFSET;
}

range *range_open(client *c, const range_request *request, range_failure *failure) {
    range *r = calloc(1, sizeof *r);
    if (r) r->topic_name = strdup(request->topic);
    if (!r || !r->topic_name) {
        free(r);
        failure_set(failure, FAILURE_MEMORY, 0, "no memory for a reader");
        return NULL;
    }
    r->client = c;
    r->rdk = c->rdk;
    r->is_reused = c->is_used;
    c->is_used = 1;
    if (r->is_reused) forget(c);
    r->partition = request->partition;
    r->position = request->start;
    r->end = request->end;
    r->leader_epoch = request->leader_epoch;
    r->batch_bytes = request->batch_bytes;
    r->timeout_ms = request->timeout_ms;
    r->grace_ms = request->grace_ms;
    r->waiting_since_ms = NEVER;
    columns_init(&r->columns, r->topic_name, r->partition, request->has_headers);
    if (start(r, failure)) {
        range_close(r);
        return NULL;
    }
    return r;
}

void range_stop(range *r) {
    if (r->is_started) r->rdk->consume_stop(r->topic, r->partition);
    r->is_started = 0;
}

void range_close(range *r) {
    if (r->client->made_by != getpid()) return; /* nobody would answer: leave it */
    while (r->held_at < r->held_count)
        drop_held(r);
    range_stop(r);
    if (r->queue) r->rdk->queue_destroy(r->queue);
    if (r->topic) r->rdk->topic_destroy(r->topic);
    columns_free(&r->columns);
    free(r->topic_name);
    free(r);
}
