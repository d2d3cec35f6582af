/* Reading a range: from messages to batches, and what else may come. */
#include <stdio.h>
#include <time.h>

#include "question.h"
#include "range_internal.h"

enum { FIRST_TAKEN = 64, REUSED_PATIENCE_MS = 1000 };

/* So many answers without a record: the client cannot decode what comes. */
enum { FRUITLESS = 3 };

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- failing ---------------------------------------------------------------------- */

static range_state fail_columns(range *r, column_result result) {
    columns_free(&r->columns); /* a half row may be in them */
    if (result == COLUMN_NO_MEMORY)
        return range_fail(r, FAILURE_MEMORY, 0, "no memory for a batch");
    return range_fail(r, FAILURE_RECORD, 0, "it takes more than 2 GiB in one column");
}

static range_state take_event(range *r, const rdk_message *event) {
    char text[sizeof r->failure.text];
    snprintf(text, sizeof text, "%.*s", (int)event->payload_len,
             event->payload ? (const char *)event->payload : "");
    failure_kind kind = kind_of_event(event->err);
    if (kind == FAILURE_NONE) {
        watch_trouble(&r->client->watch, event->err, text);
        return RANGE_WAITING;
    }
    if (kind == FAILURE_FETCH && event->offset >= r->end) {
        r->position = r->end; /* of another range; the rest of this one is a hole */
        return RANGE_DONE;
    }
    /* Behind a hole it is further than the last record. */
    if (kind == FAILURE_FETCH && event->offset > r->position) r->position = event->offset;
    range_fail(r, kind, event->err, text);
    if (kind == FAILURE_OUT_OF_RANGE)
        ask_bounds(r, &r->failure.log_start, &r->failure.log_end);
    return RANGE_FAILED;
}

/* --- taking messages in ----------------------------------------------------------- */

static void progress(range *r, int64_t position) {
    if (position > r->position) r->position = position;
    r->waiting_since_ms = NEVER;
}

static column_result add_headers(range *r, const rdk_message *message, int *code) {
    rdk_headers *headers;
    const char *key;
    const void *value;
    size_t size;
    *code = r->rdk->message_headers(message, &headers);
    for (size_t i = 0; !*code; i++) {
        if (r->rdk->header_get_all(headers, i, &key, &value, &size)) break;
        column_result result = columns_add_header(&r->columns, key, value, size);
        if (result) return result;
    }
    if (*code == RDK_ERR_NO_ENTRY) *code = 0; /* a record without headers */
    return COLUMN_OK;
}

static range_state add(range *r, const rdk_message *message) {
    int type = 0, code = 0;
    int64_t timestamp_us;
    int64_t timestamp_ms = r->rdk->message_timestamp(message, &type);
    column_result result = COLUMN_OK;
    r->position = message->offset;
    if (__builtin_mul_overflow(timestamp_ms, (int64_t)1000, &timestamp_us))
        timestamp_us = NO_TIME;
    if (r->columns.has_headers) result = add_headers(r, message, &code);
    if (code)
        return range_fail(r, FAILURE_RECORD, code, "its headers cannot be decoded");
    if (!result)
        result =
            columns_add(&r->columns, message->key, message->key_len, message->payload,
                        message->payload_len, message->offset, timestamp_us, type - 1);
    if (result) return fail_columns(r, result);
    progress(r, message->offset + 1);
    return r->position >= r->end ? RANGE_DONE : RANGE_WAITING;
}

/* A client that was used before is only believed as far as record follows record. A
 * hole, or an end behind one, may be left over from the range before. */
static int is_doubtful(const range *r, const rdk_message *message) {
    int is_known = !message->err || message->err == RDK_ERR_PARTITION_EOF;
    return r->is_reused && (!is_known || message->offset != r->position);
}

/* Whether a later leader wrote it than the range was planned under. */
static int is_replaced(const range *r, const rdk_message *message) {
    return r->leader_epoch >= 0 &&
           r->rdk->message_leader_epoch(message) > r->leader_epoch;
}

/* RANGE_BATCH: the batch must go out before this message. */
static range_state take_in(range *r, const rdk_message *message) {
    if (is_doubtful(r, message))
        return range_fail(r, FAILURE_STALE, message->err, "not what comes next");
    if (message->err == RDK_ERR_PARTITION_EOF) {
        r->is_at_log_end = 1;
        if (message->offset > r->position) progress(r, message->offset);
        return r->position >= r->end ? RANGE_DONE : RANGE_WAITING;
    }
    if (message->err) return take_event(r, message);
    if (message->offset >= r->end) {
        progress(r, r->end); /* the rest of the range is a hole */
        return RANGE_DONE;
    }
    if (is_replaced(r, message)) {
        range_fail(r, FAILURE_REPLACED, 0, "of a later leader epoch");
        r->failure.log_end = message->offset;
        return RANGE_FAILED;
    }
    int64_t cost = columns_cost(&r->columns, message->key_len, message->payload_len);
    if (r->columns.rows && r->columns.bytes + cost > r->batch_bytes) return RANGE_BATCH;
    r->record_bytes += r->record_bytes ? (cost - r->record_bytes) / 8 : cost;
    return add(r, message);
}

/* --- reading ---------------------------------------------------------------------- */

static size_t how_many(const range *r) {
    if (!r->record_bytes) return FIRST_TAKEN;
    int64_t count = (r->batch_bytes - r->columns.bytes) / r->record_bytes + 1;
    if (count < 1) return 1;
    return count > RANGE_HELD ? RANGE_HELD : (size_t)count;
}

/* Take what is queued; when nothing is, wait for one message, at most a slice. */
static void take_messages(range *r) {
    ssize_t count = r->rdk->consume_batch_queue(r->queue, 0, r->held, how_many(r));
    if (count <= 0)
        count = r->rdk->consume_batch_queue(r->queue, RANGE_SLICE_MS, r->held, 1);
    r->held_at = 0;
    r->held_count = count > 0 ? (size_t)count : 0;
    if (r->held_count) watch_answered(&r->client->watch);
}

/* Control records reach nobody, but move librdkafka's position. */
static void follow_position(range *r) {
    rdk_positions *list = r->rdk->topic_partition_list_new(1);
    r->rdk->topic_partition_list_add(list, r->topic_name, r->partition);
    r->rdk->position(r->client->handle, list);
    if (list->elements[0].offset > r->position) progress(r, list->elements[0].offset);
    r->rdk->topic_partition_list_destroy(list);
}

/* Let librdkafka report; what it fetches for nobody is progress, too. */
static void listen(range *r) {
    const watch *watch = &r->client->watch;
    int64_t fetched_to = watch->fetched_to;
    client_listen(r->client);
    if (watch->fetched_to > fetched_to) r->waiting_since_ms = NEVER;
}

/* Nothing came, although the broker answered: why, and 0 if that is not known. */
static int damage(const range *r) {
    const watch *watch = &r->client->watch;
    if (watch->code == RDK_ERR_CORRUPT_MESSAGE) return watch->code;
    return watch->partial >= r->partial + FRUITLESS ? RDK_ERR_UNDERFLOW : 0;
}

/* How long nothing came, and whether that is too long. */
static range_state check_stall(range *r) {
    int64_t now = now_ms();
    if (r->waiting_since_ms == NEVER) {
        r->waiting_since_ms = r->asked_ms = now;
        r->partial = r->client->watch.partial;
    }
    if (r->is_reused)
        return now - r->waiting_since_ms < REUSED_PATIENCE_MS
                   ? RANGE_WAITING
                   : range_fail(r, FAILURE_STALE, 0, "nothing came");
    int64_t patience_ms = r->grace_ms < r->timeout_ms ? r->grace_ms : r->timeout_ms;
    if (now - r->asked_ms >= patience_ms) {
        if (ask_why(r) == RANGE_FAILED) return RANGE_FAILED;
        r->asked_ms = now_ms();
    }
    int64_t waited_ms = now - r->waiting_since_ms;
    if (waited_ms >= patience_ms && damage(r))
        return range_fail(r, FAILURE_TIMED_OUT, damage(r), watch_reason(&r->client->watch));
    if (waited_ms < r->timeout_ms) return RANGE_WAITING;
    const watch *watch = &r->client->watch;
    return range_fail(r, FAILURE_TIMED_OUT, watch->code, watch_reason(watch));
}

/* Nothing is queued: the end, a failure, or more waiting. */
static range_state idle(range *r) {
    if (r->is_reused) return check_stall(r);
    const watch *watch = &r->client->watch;
    /* Told before the queue was found empty: all that was fetched by then was taken. */
    if (watch->fetched_to >= r->end) progress(r, r->end);
    listen(r);
    follow_position(r);
    if (r->position >= r->end) return RANGE_DONE;
    if (watch->denied_code)
        return range_fail(r, FAILURE_DENIED, watch->denied_code, watch_reason(watch));
    return check_stall(r);
}

static range_state fill(range *r) {
    range_state state = RANGE_WAITING;
    if (r->failure.kind) return RANGE_FAILED;
    if (r->position >= r->end) return RANGE_DONE;
    while (state == RANGE_WAITING) {
        if (r->held_at == r->held_count) take_messages(r);
        if (r->held_at == r->held_count) return idle(r);
        state = take_in(r, r->held[r->held_at]);
        if (state != RANGE_BATCH) drop_held(r);
    }
    return state;
}

range_state range_next(range *r, struct ArrowArray *batch, range_failure *failure) {
    listen(r);
    range_state state = fill(r);
    if (r->position >= r->end) range_stop(r);
    if (state != RANGE_WAITING && r->columns.rows) {
        column_result result = columns_export(&r->columns, batch);
        state = result ? fail_columns(r, result) : RANGE_BATCH;
    }
    if (state == RANGE_FAILED) *failure = r->failure;
    return state;
}
