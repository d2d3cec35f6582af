/* Records gathered into the columns of one Arrow record batch.
 *
 * Order and types: key binary, value binary, topic string, partition int32,
 * offset int64, timestamp in microseconds, timestampType int32 and, when asked for,
 * headers list<struct<key string, value binary>>. Every column may hold nulls.
 */
#ifndef KAFKA_TX_COLUMNS_H
#define KAFKA_TX_COLUMNS_H

#include "arrow_c_data.h"
#include "var_column.h"

typedef struct constants constants;

typedef struct {
    int has_headers;
    int64_t rows;
    int64_t bytes; /* of all columns: what a batch is limited by */
    int64_t room_rows;
    int64_t likely_rows;
    var_column key, value;
    int64_t *offset;
    int64_t *timestamp_us; /* NO_TIME is a null */
    int64_t timestamp_nulls;
    uint8_t *timestamp_valid; /* made for the export where there are nulls */
    int32_t *timestamp_type;
    var_column headers; /* a list whose ends count rows of the next two */
    var_column header_key, header_value;
    const char *topic;
    int32_t partition;
    int64_t row_bytes; /* what every record adds, whatever it holds */
    constants *same;   /* topic and partition of every row, shared by all batches */
} columns;

/* The time of a record whose own does not fit into 64-bit microseconds. */
#define NO_TIME INT64_MIN

/* Begin without rows. `topic` must outlive the columns. */
void columns_init(columns *, const char *topic, int32_t partition, int has_headers);

/* Bytes that a record of these lengths adds, its headers apart. */
int64_t columns_cost(const columns *, size_t key_size, size_t value_size);

/* Add a row; NULL as key or value is a null. Where the columns have headers, the row's
 * are added first, one by one: a row without any gets a null list.
 * After a failure the rows are of no use any more: free them. */
column_result columns_add(columns *, const void *key, size_t key_size,
                          const void *value, size_t value_size, int64_t offset,
                          int64_t timestamp_us, int32_t timestamp_type);
column_result columns_add_header(columns *, const char *key, const void *value,
                                 size_t value_size);

/* Hand all rows over, without a copy, and begin anew. `out` owns the buffers.
 * After a failure `out` is untouched and the rows are still here. */
column_result columns_export(columns *, struct ArrowArray *out);

void columns_free(columns *);

/* --- topic and partition ---------------------------------------------------------- */

struct constants {
    int64_t owners; /* atomic: batches are released on any thread */
    int64_t rows;
    int32_t *topic_ends;
    uint8_t *topic_bytes;
    int32_t *partition;
};

/* Constants for at least `rows` rows; the one given is kept if it is large enough. */
column_result constants_for(constants **, int64_t rows, const char *topic,
                            int32_t partition);
void constants_hold(constants *);
void constants_drop(constants *);

#endif
