#include "topic_id.h"

#include <stdio.h>

enum { GRACE_MS = 500 }; /* how much later librdkafka may say that it is too late */

const char *told_topic_id(const rdk_api *rdk, const rdk_topic_description *topic,
                          int *code) {
    *code = rdk->error_code(rdk->TopicDescription_error(topic));
    const rdk_uuid *uuid = *code ? NULL : rdk->TopicDescription_topic_id(topic);
    return uuid ? rdk->Uuid_base64str(uuid) : NULL;
}

static topic_id_answer read_topic(const rdk_api *rdk,
                                  const rdk_topic_description *topic,
                                  char id[TOPIC_ID_SIZE]) {
    int code;
    const char *text = told_topic_id(rdk, topic, &code);
    if (code == RDK_ERR_UNKNOWN_TOPIC_OR_PARTITION || code == RDK_ERR_UNKNOWN_TOPIC)
        return TOPIC_ID_ABSENT;
    if (!text) return TOPIC_ID_UNKNOWN;
    snprintf(id, TOPIC_ID_SIZE, "%s", text);
    return TOPIC_ID_TOLD;
}

static topic_id_answer read_answer(const rdk_api *rdk, rdk_event *event,
                                   char id[TOPIC_ID_SIZE]) {
    const rdk_result *result = rdk->event_DescribeTopics_result(event);
    if (!result || rdk->event_error(event)) return TOPIC_ID_UNKNOWN;
    size_t count = 0;
    const rdk_topic_description **topics =
        rdk->DescribeTopics_result_topics(result, &count);
    return count == 1 ? read_topic(rdk, topics[0], id) : TOPIC_ID_UNKNOWN;
}

void ask_for_topics(client *c, const char *const *names, size_t count, int timeout_ms,
                    rdk_queue *answers) {
    char why[200];
    rdk_options *options = c->rdk->AdminOptions_new(c->handle, RDK_DESCRIBE_TOPICS);
    rdk_names *asked = c->rdk->TopicCollection_of_topic_names(names, count);
    c->rdk->AdminOptions_set_request_timeout(options, timeout_ms, why, sizeof why);
    c->rdk->DescribeTopics(c->handle, asked, options, answers);
    c->rdk->TopicCollection_destroy(asked);
    c->rdk->AdminOptions_destroy(options);
}

topic_id_answer ask_topic_id(client *c, const char *topic, int timeout_ms,
                             char id[TOPIC_ID_SIZE]) {
    rdk_queue *answers = c->rdk->queue_new(c->handle);
    ask_for_topics(c, &topic, 1, timeout_ms, answers);
    rdk_event *event = c->rdk->queue_poll(answers, timeout_ms + GRACE_MS);
    topic_id_answer answer = TOPIC_ID_UNKNOWN;
    if (event) {
        answer = read_answer(c->rdk, event, id);
        c->rdk->event_destroy(event);
    }
    c->rdk->queue_destroy(answers);
    return answer;
}
