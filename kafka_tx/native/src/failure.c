#include "failure.h"

#include <stdio.h>

#include "rdkafka_api.h"

void failure_set(range_failure *failure, failure_kind kind, int code,
                 const char *text) {
    failure->kind = kind;
    failure->code = code;
    failure->position = failure->log_start = failure->log_end = UNKNOWN_OFFSET;
    snprintf(failure->text, sizeof failure->text, "%s", text ? text : "");
}

failure_kind kind_of_event(int code) {
    switch (code) {
    case RDK_ERR_AUTHENTICATION:
    case RDK_ERR_SSL:
    case RDK_ERR_SASL_AUTHENTICATION:
    case RDK_ERR_TOPIC_AUTHORIZATION:
    case RDK_ERR_CLUSTER_AUTHORIZATION: return FAILURE_DENIED;
    case RDK_ERR_OFFSET_OUT_OF_RANGE:
    case RDK_ERR_AUTO_OFFSET_RESET: return FAILURE_OUT_OF_RANGE;
    case RDK_ERR_UNKNOWN_TOPIC:
    case RDK_ERR_UNKNOWN_PARTITION:
    case RDK_ERR_UNKNOWN_TOPIC_ID:
    case RDK_ERR_UNKNOWN_TOPIC_OR_PARTITION: return FAILURE_UNKNOWN_TOPIC;
    /* It found a record that it cannot decode: its next one would be behind it. */
    case RDK_ERR_MESSAGE_TOO_LARGE:
    case RDK_ERR_UNSUPPORTED_COMPRESSION: return FAILURE_FETCH;
    }
    /* So are all of librdkafka's own codes. The broker's troubles may pass. */
    return code <= RDK_ERR_LAST_OWN ? FAILURE_FETCH : FAILURE_NONE;
}
