/* The part of librdkafka's public C interface that reader and writer call.
 *
 * Declared here so that building needs neither librdkafka's headers nor a second copy
 * of the library: every function is looked up at run time in the shared object that
 * confluent-kafka uses. All of it is librdkafka 2.x's stable interface:
 * the structures below have not changed since 0.11. Topics are described since 2.3.
 */
#ifndef KAFKA_TX_RDKAFKA_API_H
#define KAFKA_TX_RDKAFKA_API_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rdk_client rdk_client;   /* rd_kafka_t */
typedef struct rdk_conf rdk_conf;       /* rd_kafka_conf_t */
typedef struct rdk_topic rdk_topic;     /* rd_kafka_topic_t */
typedef struct rdk_queue rdk_queue;     /* rd_kafka_queue_t */
typedef struct rdk_headers rdk_headers; /* rd_kafka_headers_t */
typedef struct rdk_event rdk_event;     /* rd_kafka_event_t */
typedef struct rdk_error rdk_error;     /* rd_kafka_error_t */
typedef struct rdk_uuid rdk_uuid;       /* rd_kafka_Uuid_t */
typedef struct rdk_names rdk_names;     /* rd_kafka_TopicCollection_t */
typedef struct rdk_options rdk_options; /* rd_kafka_AdminOptions_t */
typedef struct rdk_result rdk_result;   /* rd_kafka_DescribeTopics_result_t */
typedef struct rdk_topic_description rdk_topic_description;
typedef struct rdk_described rdk_described; /* rd_kafka_TopicPartitionInfo_t */
typedef struct rdk_node rdk_node;           /* rd_kafka_Node_t */
typedef struct rdk_offsets_result rdk_offsets_result; /* …ListOffsets_result_t */
typedef struct rdk_offset_info rdk_offset_info;       /* …ListOffsetsResultInfo_t */
typedef struct rdk_group rdk_group; /* rd_kafka_consumer_group_metadata_t */

typedef struct {
    int err; /* 0 for a record; otherwise payload is the text of an event */
    rdk_topic *topic;
    int32_t partition;
    void *payload;
    size_t payload_len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *owner; /* a consumer's own; what a producer gave with the record */
} rdk_message;

typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
    void *metadata;
    size_t metadata_size;
    void *opaque;
    int err;
    void *owner;
} rdk_position;

typedef struct {
    int count;
    int size;
    rdk_position *elements;
} rdk_positions;

typedef struct {
    int32_t id;
    int err;
    int32_t leader; /* -1 while there is none */
    int replica_count;
    int32_t *replicas;
    int in_sync_count;
    int32_t *in_sync;
} rdk_partition_metadata;

typedef struct {
    char *topic;
    int partition_count;
    rdk_partition_metadata *partitions;
    int err;
} rdk_topic_metadata;

typedef struct {
    int broker_count;
    void *brokers;
    int topic_count;
    rdk_topic_metadata *topics;
    int32_t answering_broker;
    char *answering_name;
} rdk_metadata;

/* A part of a record to produce (rd_kafka_vu_t); 64 bytes are kept for the union. */
typedef struct {
    int type;
    union {
        rdk_topic *topic;
        int number;
        int32_t partition;
        int64_t timestamp_ms;
        struct {
            const void *data;
            size_t size;
        } bytes;
        rdk_headers *headers;
        void *opaque;
        char room[64];
    } u;
} rdk_part;

typedef int rdk_stats_cb(rdk_client *, char *json, size_t size, void *opaque);
typedef void rdk_error_cb(rdk_client *, int err, const char *reason, void *opaque);
typedef void rdk_delivery_cb(rdk_client *, const rdk_message *, void *opaque);
typedef void rdk_log_cb(const rdk_client *, int level, const char *facility,
                        const char *line);

enum {
    RDK_PRODUCER = 0,
    RDK_CONSUMER = 1,
    RDK_ANY_PARTITION = -1,
    RDK_COPY = 0x2,       /* RD_KAFKA_MSG_F_COPY */
    RDK_PURGE_ALL = 0x3,  /* RD_KAFKA_PURGE_F_QUEUE and …_INFLIGHT */
    RDK_PART_TOPIC = 2,   /* RD_KAFKA_VTYPE_RKT and those that follow */
    RDK_PART_PARTITION = 3,
    RDK_PART_VALUE = 4,
    RDK_PART_KEY = 5,
    RDK_PART_OPAQUE = 6,
    RDK_PART_FLAGS = 7,
    RDK_PART_TIMESTAMP = 8,
    RDK_PART_HEADERS = 10,
    RDK_DESTROY_NO_CONSUMER_CLOSE = 0x8,
    RDK_DESCRIBE_TOPICS = 19, /* RD_KAFKA_ADMIN_OP_DESCRIBETOPICS */
    RDK_LIST_OFFSETS = 21,    /* RD_KAFKA_ADMIN_OP_LISTOFFSETS */
    RDK_OFFSET_LATEST = -1,   /* RD_KAFKA_OFFSET_SPEC_LATEST */
    RDK_OFFSET_EARLIEST = -2,

    /* librdkafka's own */
    RDK_ERR_UNKNOWN_PARTITION = -190,
    RDK_ERR_PARTITION_EOF = -191,
    RDK_ERR_UNKNOWN_TOPIC = -188,
    RDK_ERR_INVALID_ARGUMENT = -186,
    RDK_ERR_TIMED_OUT = -185,
    RDK_ERR_QUEUE_FULL = -184,
    RDK_ERR_ALL_BROKERS_DOWN = -187,
    RDK_ERR_SSL = -181,
    RDK_ERR_AUTHENTICATION = -169,
    RDK_ERR_NO_ENTRY = -156,
    RDK_ERR_UNDERFLOW = -155,
    RDK_ERR_PURGE_QUEUE = -152,
    RDK_ERR_PURGE_INFLIGHT = -151,
    RDK_ERR_FATAL = -150,
    RDK_ERR_AUTO_OFFSET_RESET = -140,

    RDK_ERR_LAST_OWN = -100,

    /* the broker's */
    RDK_ERR_OFFSET_OUT_OF_RANGE = 1,
    RDK_ERR_CORRUPT_MESSAGE = 2,
    RDK_ERR_UNKNOWN_TOPIC_OR_PARTITION = 3,
    RDK_ERR_LEADER_NOT_AVAILABLE = 5,
    RDK_ERR_MESSAGE_TOO_LARGE = 10,
    RDK_ERR_TOPIC_AUTHORIZATION = 29,
    RDK_ERR_CLUSTER_AUTHORIZATION = 31,
    RDK_ERR_SASL_AUTHENTICATION = 58,
    RDK_ERR_UNSUPPORTED_COMPRESSION = 76,
    RDK_ERR_UNKNOWN_TOPIC_ID = 100,
};

/* result, name without the prefix rd_kafka_, parameters */
#define RDK_FUNCTIONS(X)                                                               \
    X(int, version, (void))                                                            \
    X(const char *, version_str, (void))                                               \
    X(const char *, err2name, (int))                                                   \
    X(const char *, err2str, (int))                                                    \
    X(int, last_error, (void))                                                         \
    X(int, fatal_error, (rdk_client *, char *, size_t))                                \
    X(rdk_conf *, conf_new, (void))                                                    \
    X(void, conf_destroy, (rdk_conf *))                                                \
    X(int, conf_set, (rdk_conf *, const char *, const char *, char *, size_t))         \
    X(int, conf_get, (const rdk_conf *, const char *, char *, size_t *))               \
    X(void, conf_set_opaque, (rdk_conf *, void *))                                     \
    X(void, conf_set_error_cb, (rdk_conf *, rdk_error_cb *))                           \
    X(void, conf_set_stats_cb, (rdk_conf *, rdk_stats_cb *))                           \
    X(rdk_client *, new, (int, rdk_conf *, char *, size_t))                            \
    X(void, destroy_flags, (rdk_client *, int))                                        \
    X(int, poll, (rdk_client *, int))                                                  \
    X(rdk_topic *, topic_new, (rdk_client *, const char *, void *))                    \
    X(void, topic_destroy, (rdk_topic *))                                              \
    X(rdk_queue *, queue_new, (rdk_client *))                                          \
    X(void, queue_destroy, (rdk_queue *))                                              \
    X(int, consume_start_queue, (rdk_topic *, int32_t, int64_t, rdk_queue *))          \
    X(int, consume_stop, (rdk_topic *, int32_t))                                       \
    X(ssize_t, consume_batch_queue, (rdk_queue *, int, rdk_message **, size_t))        \
    X(int, position, (rdk_client *, rdk_positions *))                                  \
    X(rdk_positions *, topic_partition_list_new, (int))                                \
    X(rdk_position *, topic_partition_list_add,                                        \
      (rdk_positions *, const char *, int32_t))                                        \
    X(void, topic_partition_list_destroy, (rdk_positions *))                           \
    X(int, query_watermark_offsets,                                                    \
      (rdk_client *, const char *, int32_t, int64_t *, int64_t *, int))                \
    X(int, metadata, (rdk_client *, int, rdk_topic *, const rdk_metadata **, int))     \
    X(void, metadata_destroy, (const rdk_metadata *))                                  \
    X(rdk_event *, queue_poll, (rdk_queue *, int))                                     \
    X(int, event_log, (rdk_event *, const char **, const char **, int *))              \
    X(void, event_destroy, (rdk_event *))                                              \
    X(int, event_error, (rdk_event *))                                                 \
    X(const rdk_result *, event_DescribeTopics_result, (rdk_event *))                  \
    X(const rdk_topic_description **, DescribeTopics_result_topics,                    \
      (const rdk_result *, size_t *))                                                  \
    X(const rdk_error *, TopicDescription_error, (const rdk_topic_description *))      \
    X(const rdk_uuid *, TopicDescription_topic_id, (const rdk_topic_description *))    \
    X(const char *, TopicDescription_name, (const rdk_topic_description *))            \
    X(const rdk_described **, TopicDescription_partitions,                             \
      (const rdk_topic_description *, size_t *))                                       \
    X(int, TopicPartitionInfo_partition, (const rdk_described *))                      \
    X(const rdk_node *, TopicPartitionInfo_leader, (const rdk_described *))            \
    X(int, Node_id, (const rdk_node *))                                                \
    X(const char *, Node_host, (const rdk_node *))                                     \
    X(uint16_t, Node_port, (const rdk_node *))                                         \
    X(int, error_code, (const rdk_error *))                                            \
    X(const char *, Uuid_base64str, (const rdk_uuid *))                                \
    X(rdk_names *, TopicCollection_of_topic_names, (const char *const *, size_t))      \
    X(void, TopicCollection_destroy, (rdk_names *))                                    \
    X(rdk_options *, AdminOptions_new, (rdk_client *, int))                            \
    X(int, AdminOptions_set_request_timeout, (rdk_options *, int, char *, size_t))     \
    X(void, AdminOptions_destroy, (rdk_options *))                                     \
    X(void, DescribeTopics,                                                            \
      (rdk_client *, const rdk_names *, const rdk_options *, rdk_queue *))             \
    X(rdk_error *, AdminOptions_set_isolation_level, (rdk_options *, int))             \
    X(void, ListOffsets,                                                               \
      (rdk_client *, rdk_positions *, const rdk_options *, rdk_queue *))               \
    X(const rdk_offsets_result *, event_ListOffsets_result, (rdk_event *))             \
    X(const rdk_offset_info **, ListOffsets_result_infos,                              \
      (const rdk_offsets_result *, size_t *))                                          \
    X(const rdk_position *, ListOffsetsResultInfo_topic_partition,                     \
      (const rdk_offset_info *))                                                       \
    X(int32_t, topic_partition_get_leader_epoch, (const rdk_position *))               \
    X(const char *, event_error_string, (rdk_event *))                                 \
    X(int, set_log_queue, (rdk_client *, rdk_queue *))                                 \
    X(void, message_destroy, (rdk_message *))                                          \
    X(int64_t, message_timestamp, (const rdk_message *, int *))                        \
    X(int32_t, message_leader_epoch, (const rdk_message *))                            \
    X(int, message_headers, (const rdk_message *, rdk_headers **))                     \
    X(int, header_get_all,                                                             \
      (const rdk_headers *, size_t, const char **, const void **, size_t *))           \
    X(rdk_headers *, headers_new, (size_t))                                            \
    X(rdk_headers *, headers_copy, (const rdk_headers *))                              \
    X(void, headers_destroy, (rdk_headers *))                                          \
    X(int, header_add,                                                                 \
      (rdk_headers *, const char *, ssize_t, const void *, ssize_t))                   \
    X(void, conf_set_dr_msg_cb, (rdk_conf *, rdk_delivery_cb *))                       \
    X(void, conf_set_log_cb, (rdk_conf *, rdk_log_cb *))                               \
    X(void *, opaque, (const rdk_client *))                                            \
    X(const char *, topic_name, (const rdk_topic *))                                   \
    X(int, produce,                                                                    \
      (rdk_topic *, int32_t, int, void *, size_t, const void *, size_t, void *))       \
    X(int, produce_batch, (rdk_topic *, int32_t, int, rdk_message *, int))             \
    X(rdk_error *, produceva, (rdk_client *, const rdk_part *, size_t))                \
    X(void, error_destroy, (rdk_error *))                                              \
    X(int, flush, (rdk_client *, int))                                                 \
    X(int, purge, (rdk_client *, int))                                                 \
    X(int, outq_len, (rdk_client *))                                                   \
    X(rdk_error *, init_transactions, (rdk_client *, int))                             \
    X(rdk_error *, begin_transaction, (rdk_client *))                                  \
    X(rdk_error *, commit_transaction, (rdk_client *, int))                            \
    X(rdk_error *, abort_transaction, (rdk_client *, int))                             \
    X(rdk_error *, send_offsets_to_transaction,                                        \
      (rdk_client *, const rdk_positions *, const rdk_group *, int))                   \
    X(rdk_group *, consumer_group_metadata_new, (const char *))                        \
    X(void, consumer_group_metadata_destroy, (rdk_group *))                            \
    X(const char *, error_string, (const rdk_error *))                                 \
    X(int, error_is_fatal, (const rdk_error *))                                        \
    X(int, error_is_retriable, (const rdk_error *))                                    \
    X(int, error_txn_requires_abort, (const rdk_error *))

typedef struct {
#define RDK_FIELD(result, name, parameters) result(*name) parameters;
    RDK_FUNCTIONS(RDK_FIELD)
#undef RDK_FIELD
} rdk_api;

/* Fill `api` from the shared object at `path` or a library it needs.
 *
 * It is loaded unless it is there already: a process never has it twice. Returns 0, or
 * -1 with the reason in `why`: it cannot be loaded, lacks a function, or is of a
 * version whose structures are unknown. */
int rdk_bind(rdk_api *api, const char *path, char *why, size_t why_size);

#endif
