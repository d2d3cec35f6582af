#include "writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOGETHER = 500, SIGNALS_EVERY = 1 << 16, REPORTS_AT_MOST = 100, OVERHEAD = 100 };

/* Records on their way stay in the processor's cache only if they are few. A partition
 * still needs enough of them for a large batch. */
enum { WINDOW = 10000, OF_A_PARTITION = 1250, LONG_WAIT_MS = 10 };

/* --- what is told ----------------------------------------------------------------- */

static int is_suspect(const writer *w, int code) {
    for (const int *one = w->suspect; *one; one++)
        if (*one == code) return 1;
    return 0;
}

/* Copy `size` bytes to `*room` and move it behind them; NULL stays NULL. */
static const void *copied(char **room, const void *data, size_t size) {
    if (!data) return NULL;
    char *copy = *room;
    memcpy(copy, data, size);
    *room += size;
    return copy;
}

/* Why the client dropped a record or takes none, if brokers refused its rights; else
 * `code`. */
static int cause_of(const writer *w, int code) {
    if (code != RDK_ERR_FATAL && code != RDK_ERR_PURGE_QUEUE &&
        code != RDK_ERR_PURGE_INFLIGHT)
        return code;
    char text[1];
    int cause = w->rdk->fatal_error(w->handle, text, sizeof text);
    int is_refused =
        cause == RDK_ERR_TOPIC_AUTHORIZATION || cause == RDK_ERR_CLUSTER_AUTHORIZATION;
    return is_refused ? cause : code;
}

static told_record *told_copy(const writer *w, const rdk_message *message, int whole) {
    const char *topic = w->rdk->topic_name(message->topic);
    int code = cause_of(w, message->err);
    /* a broker's own words about the record are freed before they are reported */
    const char *text = code ? w->rdk->err2str(code) : "";
    size_t value_size = whole ? message->payload_len : 0;
    size_t names = strlen(topic) + strlen(text) + 2;
    told_record *told = calloc(1, sizeof *told + names + message->key_len + value_size);
    if (!told) return NULL;
    char *room = (char *)(told + 1);
    told->code = code;
    told->partition = message->partition;
    told->timestamp_ms = (intptr_t)message->owner; /* an answer overwrites its own */
    told->topic = copied(&room, topic, strlen(topic) + 1);
    told->text = copied(&room, text, strlen(text) + 1);
    told->key.data = copied(&room, message->key, message->key_len);
    told->key.size = message->key_len;
    told->value.data = whole ? copied(&room, message->payload, value_size) : NULL;
    told->value.size = message->payload_len;
    rdk_headers *headers;
    if (whole && !w->rdk->message_headers(message, &headers)) {
        told->headers = w->rdk->headers_copy(headers);
        if (told->headers) return told;
        told_free(w->rdk, told);
        return NULL;
    }
    return told;
}

void told_free(const rdk_api *rdk, told_record *told) {
    if (told && told->headers) rdk->headers_destroy(told->headers);
    free(told);
}

static void note(writer *w, const rdk_message *message) {
    told_record *told = told_copy(w, message, 1);
    w->is_noting = 1;
    if (!told) {
        w->has_no_memory = 1;
        return;
    }
    *w->last_noted = told;
    w->last_noted = &told->next;
}

/* Of several failures of one kind, that of the largest record is kept. */
static int is_worse(const writer *w, const rdk_message *message) {
    if (!w->worst) return 1;
    int code = cause_of(w, message->err);
    int order = strcmp(w->rdk->err2name(code), w->rdk->err2name(w->worst->code));
    size_t former = w->worst->key.size + w->worst->value.size;
    return order < 0 || (!order && message->key_len + message->payload_len > former);
}

static void delivered(rdk_client *client, const rdk_message *message, void *opaque) {
    writer *w = opaque;
    (void)client;
    if (message->partition >= w->partitions) w->partitions = message->partition + 1;
    if (!message->err && !w->is_noting) return;
    if (!message->err || is_suspect(w, message->err)) {
        note(w, message);
    } else if (is_worse(w, message)) {
        told_free(w->rdk, w->worst);
        w->worst = told_copy(w, message, 0);
        if (!w->worst) w->has_no_memory = 1;
    }
}

static void add_report(writer *w, int is_line, int code, const char *facility,
                       const char *text) {
    report *new = w->report_count < REPORTS_AT_MOST ? calloc(1, sizeof *new) : NULL;
    if (!new) return;
    new->is_line = is_line;
    new->code = code;
    snprintf(new->facility, sizeof new->facility, "%s", facility);
    snprintf(new->text, sizeof new->text, "%s", text);
    *w->last_report = new;
    w->last_report = &new->next;
    w->report_count++;
}

static void reported(rdk_client *client, int code, const char *text, void *opaque) {
    (void)client;
    add_report(opaque, 0, code, "", text);
}

static rdk_api const *logging; /* a log has no opaque: the same for all of a process */

static void logged(const rdk_client *client, int level, const char *facility,
                   const char *line) {
    add_report(logging->opaque(client), 1, level, facility, line);
}

void writer_forget(writer *w) {
    told_free(w->rdk, w->worst);
    w->worst = NULL;
    for (told_record *next; w->noted; w->noted = next) {
        next = w->noted->next;
        told_free(w->rdk, w->noted);
    }
    for (report *next; w->reports; w->reports = next) {
        next = w->reports->next;
        free(w->reports);
    }
    w->last_noted = &w->noted;
    w->last_report = &w->reports;
    w->report_count = 0;
    if (w->rdk->outq_len(w->handle)) return;
    w->is_noting = 0;
    w->window = w->narrow;
}

/* --- life ------------------------------------------------------------------------- */

static double number_of(const writer *w, const rdk_conf *conf, const char *name) {
    char text[64] = "";
    size_t room = sizeof text;
    w->rdk->conf_get(conf, name, text, &room);
    return strtod(text, NULL);
}

static rdk_conf *make_conf(writer *w, const char *const *settings,
                           range_failure *failure) {
    rdk_conf *conf = w->rdk->conf_new();
    char why[sizeof failure->text] = "";
    for (; *settings; settings += 2)
        if (w->rdk->conf_set(conf, settings[0], settings[1], why, sizeof why)) {
            w->rdk->conf_destroy(conf);
            failure_set(failure, FAILURE_SETTINGS, 0, why);
            return NULL;
        }
    double largest = number_of(w, conf, "message.max.bytes");
    w->always_fits = largest > OVERHEAD ? (size_t)largest - OVERHEAD : 0;
    /* batches that wait for long are meant to be large */
    int is_hasty = number_of(w, conf, "queue.buffering.max.ms") <= LONG_WAIT_MS;
    w->narrow = w->window = is_hasty ? WINDOW : INT64_MAX;
    w->rdk->conf_set_opaque(conf, w);
    w->rdk->conf_set(conf, "log.queue", "true", NULL, 0);
    w->rdk->conf_set_log_cb(conf, logged);
    w->rdk->conf_set_error_cb(conf, reported);
    w->rdk->conf_set_dr_msg_cb(conf, delivered);
    return conf;
}

writer *writer_open(const rdk_api *rdk, const char *const *settings, const int *suspect,
                    range_failure *failure) {
    char why[sizeof failure->text] = "";
    writer *w = calloc(1, sizeof *w);
    if (!w) {
        failure_set(failure, FAILURE_MEMORY, 0, "no memory for a client");
        return NULL;
    }
    w->rdk = logging = rdk;
    w->made_by = getpid();
    w->suspect = suspect;
    w->last_noted = &w->noted;
    w->last_report = &w->reports;
    rdk_conf *conf = make_conf(w, settings, failure);
    if (conf && !(w->handle = rdk->new(RDK_PRODUCER, conf, why, sizeof why))) {
        rdk->conf_destroy(conf); /* a client that exists owns it */
        failure_set(failure, FAILURE_SETTINGS, 0, why);
    }
    if (w->handle) {
        rdk->set_log_queue(w->handle, NULL); /* lines come with rd_kafka_poll */
        return w;
    }
    free(w);
    return NULL;
}

void writer_close(writer *w) {
    if (w->made_by != getpid()) return;
    w->rdk->destroy_flags(w->handle, 0); /* what is dropped may still be told */
    w->handle = NULL;
    for (told_record *next; w->noted; w->noted = next) {
        next = w->noted->next;
        told_free(w->rdk, w->noted);
    }
    for (report *next; w->reports; w->reports = next) {
        next = w->reports->next;
        free(w->reports);
    }
    told_free(w->rdk, w->worst);
    free(w);
}

/* --- sending ---------------------------------------------------------------------- */

static int produce_parts(writer *w, rdk_topic *topic, int32_t partition, out_bytes key,
                         out_bytes value, int64_t timestamp_ms, rdk_headers *headers) {
    rdk_part parts[] = {
        {RDK_PART_TOPIC, {.topic = topic}},
        {RDK_PART_PARTITION, {.partition = partition}},
        {RDK_PART_KEY, {.bytes = {key.data, key.size}}},
        {RDK_PART_VALUE, {.bytes = {value.data, value.size}}},
        {RDK_PART_FLAGS, {.number = RDK_COPY}},
        {RDK_PART_TIMESTAMP, {.timestamp_ms = timestamp_ms}},
        {RDK_PART_OPAQUE, {.opaque = (void *)(intptr_t)timestamp_ms}},
        {RDK_PART_HEADERS, {.headers = headers}},
    };
    size_t count = sizeof parts / sizeof *parts - (headers ? 0 : 1);
    rdk_error *error = w->rdk->produceva(w->handle, parts, count);
    if (!error) return 0;
    int code = w->rdk->error_code(error);
    w->rdk->error_destroy(error);
    return code; /* it is the cause already */
}

int writer_produce(writer *w, rdk_topic *topic, int32_t partition, out_bytes key,
                   out_bytes value, int64_t timestamp_ms, rdk_headers *headers) {
    if (!topic) return RDK_ERR_INVALID_ARGUMENT;
    if (headers || timestamp_ms)
        return produce_parts(w, topic, partition, key, value, timestamp_ms, headers);
    if (!w->rdk->produce(topic, partition, RDK_COPY, (void *)value.data, value.size,
                         key.data, key.size, NULL))
        return 0;
    return cause_of(w, w->rdk->last_error());
}

static int has_headers(const outgoing *rows, int64_t row) {
    return !out_is_null(&rows->headers, row) &&
           out_offset(&rows->headers, row) < out_offset(&rows->headers, row + 1);
}

/* The headers of a row; NULL without memory, or where there are none. */
static rdk_headers *headers_at(writer *w, const outgoing *rows, int64_t row) {
    if (!has_headers(rows, row)) return NULL;
    int64_t at = out_offset(&rows->headers, row);
    int64_t end = out_offset(&rows->headers, row + 1);
    rdk_headers *headers = w->rdk->headers_new((size_t)(end - at));
    for (; at < end; at++) {
        out_bytes key = out_bytes_at(&rows->header_key, at);
        out_bytes value = out_bytes_at(&rows->header_value, at);
        w->rdk->header_add(headers, key.data, (ssize_t)key.size, value.data,
                           (ssize_t)value.size);
    }
    return headers;
}

static int32_t topic_of(const outgoing *rows, int64_t row) {
    return rows->topic.values ? out_int32(&rows->topic, row) : 0;
}

static int produce_row(writer *w, const outgoing *rows, rdk_topic *const *topics,
                       int64_t row) {
    rdk_topic *topic = topics[topic_of(rows, row)];
    int32_t partition = RDK_ANY_PARTITION;
    int64_t timestamp_ms = 0;
    if (!out_is_null(&rows->partition, row))
        partition = out_int32(&rows->partition, row);
    if (!out_is_null(&rows->timestamp_ms, row))
        timestamp_ms = out_int64(&rows->timestamp_ms, row);
    rdk_headers *headers = headers_at(w, rows, row);
    int code = writer_produce(w, topic, partition, out_bytes_at(&rows->key, row),
                              out_bytes_at(&rows->value, row), timestamp_ms, headers);
    if (code && headers) w->rdk->headers_destroy(headers);
    return code;
}

/* Fill `messages` with the rows from `at` on that one call can hand over: of one topic,
 * with nothing but key and value, and too small for the client to refuse just one. */
static int plain_rows(const writer *w, const outgoing *rows, int64_t at, int64_t until,
                      rdk_message *messages) {
    int32_t topic = topic_of(rows, at);
    int count = 0;
    if (until - at > TOGETHER) until = at + TOGETHER;
    for (; at < until && topic_of(rows, at) == topic; at++, count++) {
        out_bytes key = out_bytes_at(&rows->key, at);
        out_bytes value = out_bytes_at(&rows->value, at);
        if (key.size + value.size > w->always_fits ||
            !out_is_null(&rows->partition, at) ||
            !out_is_null(&rows->timestamp_ms, at) || has_headers(rows, at))
            break;
        messages[count] = (rdk_message){.payload = (void *)value.data,
                                        .payload_len = value.size,
                                        .key = (void *)key.data,
                                        .key_len = key.size};
    }
    return count;
}

/* Hand over rows from `*at` on and move it behind them; 0, or why not the next one. */
static int produce_some(writer *w, const outgoing *rows, rdk_topic *const *topics,
                        int64_t *at, int64_t until) {
    rdk_message messages[TOGETHER];
    rdk_topic *topic = topics[topic_of(rows, *at)];
    int count = topic ? plain_rows(w, rows, *at, until, messages) : 0;
    if (count < 2) {
        int code = produce_row(w, rows, topics, *at);
        *at += !code;
        return code;
    }
    /* It takes rows up to the first for which there is no room; and all rows or none
     * as far as the topic is concerned, which it keeps locked. */
    int done = w->rdk->produce_batch(topic, RDK_ANY_PARTITION, RDK_COPY, messages, count);
    *at += done;
    return done < count ? cause_of(w, messages[done].err) : 0;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wait until the window has room; 0: it has none. A long wait is the way to the brokers,
 * which a wider window hides. */
static int wait_for_window(writer *w, int64_t least, int wait_ms) {
    while (w->rdk->outq_len(w->handle) >= (w->window < least ? least : w->window)) {
        int64_t since_ms = now_ms();
        int served = w->rdk->poll(w->handle, wait_ms);
        if (now_ms() - since_ms >= LONG_WAIT_MS) w->window += w->window / 8;
        if (!served || writer_has_news(w)) return 0;
    }
    return 1;
}

int writer_send(writer *w, const outgoing *rows, rdk_topic *const *topics,
                int64_t topic_count, int64_t *at, int wait_ms) {
    int64_t until = rows->rows;
    if (until - *at > SIGNALS_EVERY) until = *at + SIGNALS_EVERY;
    for (int64_t checked = -TOGETHER; *at < until;) {
        if (*at - checked >= TOGETHER) {
            w->rdk->poll(w->handle, 0);
            int64_t least = OF_A_PARTITION * topic_count * w->partitions;
            if (!wait_for_window(w, least, wait_ms)) return 0;
            checked = *at;
        }
        int code = produce_some(w, rows, topics, at, until);
        if (code == RDK_ERR_QUEUE_FULL) {
            if (!w->rdk->poll(w->handle, wait_ms)) return 0;
        } else if (code) {
            return code;
        }
        if (writer_has_news(w)) return 0;
    }
    return 0;
}

rdk_error *writer_send_offset(writer *w, const char *group, const char *topic,
                              int32_t partition, int64_t offset, const char *metadata,
                              int timeout_ms) {
    rdk_group *of = w->rdk->consumer_group_metadata_new(group);
    rdk_positions *offsets = w->rdk->topic_partition_list_new(1);
    rdk_position *one = w->rdk->topic_partition_list_add(offsets, topic, partition);
    one->offset = offset;
    one->metadata = metadata ? strdup(metadata) : NULL; /* the list frees it */
    one->metadata_size = one->metadata ? strlen(metadata) + 1 : 0; /* read to the NUL */
    rdk_error *error =
        w->rdk->send_offsets_to_transaction(w->handle, offsets, of, timeout_ms);
    w->rdk->topic_partition_list_destroy(offsets);
    w->rdk->consumer_group_metadata_destroy(of);
    return error;
}
