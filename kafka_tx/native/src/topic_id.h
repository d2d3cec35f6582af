/* Which topic it is that has a name now: one that is made anew has another id. */
#ifndef KAFKA_TX_TOPIC_ID_H
#define KAFKA_TX_TOPIC_ID_H

#include "client.h"

/* Ask for topics by name; the answer comes into the queue. */
void ask_for_topics(client *, const char *const *names, size_t count, int timeout_ms,
                    rdk_queue *answers);

/* The id in an answer; NULL where the topic cannot be described. */
const char *told_topic_id(const rdk_api *, const rdk_topic_description *, int *code);

enum { TOPIC_ID_SIZE = 32 }; /* 22 characters of base64 and a zero */

typedef enum { TOPIC_ID_TOLD, TOPIC_ID_ABSENT, TOPIC_ID_UNKNOWN } topic_id_answer;

/* Ask the brokers, through the connections that the client has. TOPIC_ID_ABSENT: there
 * is no such topic; TOPIC_ID_UNKNOWN: nobody tells within the time. */
topic_id_answer ask_topic_id(client *, const char *topic, int timeout_ms,
                             char id[TOPIC_ID_SIZE]);

#endif
