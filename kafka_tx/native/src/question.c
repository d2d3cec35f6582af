#include "question.h"

#include "range_internal.h"

enum { ANSWER_MS = 2000 };

static int answer_ms(const range *r) {
    return r->timeout_ms < ANSWER_MS ? (int)r->timeout_ms : ANSWER_MS;
}

void ask_bounds(range *r, int64_t *log_start, int64_t *log_end) {
    if (r->rdk->query_watermark_offsets(r->client->handle, r->topic_name, r->partition,
                                        log_start, log_end, answer_ms(r)))
        *log_start = *log_end = UNKNOWN_OFFSET;
}

/* The log may end below the range: a broker may know better by now. */
static range_state check_log_end(range *r) {
    int64_t log_start, log_end;
    ask_bounds(r, &log_start, &log_end);
    if (log_end == UNKNOWN_OFFSET || log_end >= r->end) return RANGE_WAITING;
    range_fail(r, FAILURE_OUT_OF_RANGE, 0, "the log ends below the range");
    r->failure.log_start = log_start;
    r->failure.log_end = log_end;
    return RANGE_FAILED;
}

static range_state check_error(range *r, int code) {
    failure_kind kind = kind_of_event(code);
    if (kind == FAILURE_DENIED || kind == FAILURE_UNKNOWN_TOPIC)
        return range_fail(r, kind, code, r->rdk->err2str(code));
    watch_trouble(&r->client->watch, code, r->rdk->err2str(code));
    return RANGE_WAITING;
}

static range_state check_topic(range *r, const rdk_topic_metadata *topic) {
    if (topic->err) return check_error(r, topic->err);
    for (int i = 0; i < topic->partition_count; i++) {
        if (topic->partitions[i].id != r->partition) continue;
        if (topic->partitions[i].leader < 0)
            return check_error(r, RDK_ERR_LEADER_NOT_AVAILABLE);
        return r->is_at_log_end ? check_log_end(r) : RANGE_WAITING;
    }
    return check_error(r, RDK_ERR_UNKNOWN_PARTITION);
}

range_state ask_why(range *r) {
    const rdk_metadata *found;
    if (r->rdk->metadata(r->client->handle, 0, r->topic, &found, answer_ms(r)))
        return RANGE_WAITING;
    range_state state = RANGE_WAITING;
    if (found->topic_count == 1) state = check_topic(r, &found->topics[0]);
    r->rdk->metadata_destroy(found);
    return state;
}
