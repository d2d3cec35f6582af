/* Writes columns and single records, one of them refused, and a transaction with an
 * offset, without Python: for valgrind and sanitizers.
 *
 * Arguments: librdkafka's path, its addresses, topic, rows. Prints "handed over, refused,
 * left": how many rows, the code of the record that is too large, and what is still on
 * its way after a flush. Another writer is closed with records in its queue. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_sum.h"
#include "writer.h"

enum { ROWS = 100, SLICED = 7 };

static int32_t ends[ROWS + SLICED + 1], lists[ROWS + SLICED + 1], partitions[ROWS];
static int64_t wide_ends[ROWS + 1], times[ROWS];
static char bytes[ROWS + SLICED];
static const uint8_t odd[ROWS] = {0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA,
                                  0xAA, 0xAA, 0xAA, 0xAA, 0xAA, 0xAA};

static const void *of_keys[] = {odd, ends, bytes}, *of_values[] = {NULL, wide_ends, bytes},
                  *of_partitions[] = {odd, partitions}, *of_times[] = {odd, times},
                  *of_lists[] = {NULL, lists}, *of_entries[] = {NULL},
                  *of_header_values[] = {odd, ends, bytes};

#define ARRAY(rows, nulls, buffers, count, first)                                      \
    {rows, nulls, first, count, 0, buffers, NULL, NULL, NULL, NULL}

static struct ArrowArray key = ARRAY(ROWS, 50, of_keys, 3, 0),
                         value = ARRAY(ROWS, 0, of_values, 3, 0),
                         partition = ARRAY(ROWS, 50, of_partitions, 2, 0),
                         timestamp = ARRAY(ROWS, 50, of_times, 2, 0),
                         header_key = ARRAY(ROWS, 0, of_values, 3, 0),
                         header_value = ARRAY(ROWS, 50, of_header_values, 3, 0),
                         entry = ARRAY(ROWS, 0, of_entries, 1, 0),
                         headers = ARRAY(ROWS, 0, of_lists, 2, SLICED),
                         batch = ARRAY(ROWS, 0, of_entries, 1, 0);
static struct ArrowSchema key_schema = {.format = "u", .name = "key"},
                          value_schema = {.format = "Z", .name = "value"},
                          partition_schema = {.format = "i", .name = "partition"},
                          timestamp_schema = {.format = "l", .name = "timestamp"},
                          header_key_schema = {.format = "U", .name = "key"},
                          header_value_schema = {.format = "z", .name = "value"},
                          entry_schema = {.format = "+s", .name = "item"},
                          headers_schema = {.format = "+l", .name = "headers"},
                          batch_schema = {.format = "+s", .name = ""};

static void fill(void) {
    static struct ArrowArray *in_entry[] = {&header_key, &header_value},
                             *in_list[] = {&entry},
                             *all[] = {&key, &value, &partition, &timestamp, &headers};
    static struct ArrowSchema *entry_of[] = {&header_key_schema, &header_value_schema},
                              *list_of[] = {&entry_schema},
                              *all_of[] = {&key_schema, &value_schema, &partition_schema,
                                           &timestamp_schema, &headers_schema};
    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i <= ROWS; i++) {
        ends[i] = i;
        wide_ends[i] = i;
        lists[i + SLICED] = i / 2; /* every second row has one */
        if (i < ROWS) times[i] = 1000 + i;
    }
    entry.n_children = 2, entry.children = in_entry;
    entry_schema.n_children = 2, entry_schema.children = entry_of;
    headers.n_children = 1, headers.children = in_list;
    headers_schema.n_children = 1, headers_schema.children = list_of;
    batch.n_children = 5, batch.children = all;
    batch_schema.n_children = 5, batch_schema.children = all_of;
}

static long long write_rows(writer *w, rdk_topic *topic, long long wanted) {
    outgoing rows;
    long long done = 0;
    if (outgoing_open(&rows, &batch_schema, &batch)) return -1;
    while (done < wanted) {
        int64_t at = 0;
        while (at < rows.rows)
            if (writer_send(w, &rows, &topic, 1, &at, 100)) return -1;
        done += at;
    }
    return done;
}

static int refused(writer *w, rdk_topic *topic) {
    static char large[5000];
    rdk_headers *more = w->rdk->headers_new(1);
    w->rdk->header_add(more, "h", 1, NULL, 0);
    out_bytes nothing = {NULL, 0}, value = {large, sizeof large};
    int code = writer_produce(w, topic, -1, nothing, value, 0, more);
    if (code) w->rdk->headers_destroy(more);
    return code;
}

/* 0: a transaction with rows and an offset was committed. */
static int commit_one(const rdk_api *rdk, const char *addresses, const char *name) {
    const int suspect[] = {10, 0};
    range_failure failure;
    const char *settings[] = {"bootstrap.servers", addresses, "transactional.id", "id",
                              NULL};
    writer *w = writer_open(rdk, settings, suspect, &failure);
    if (!w) return 1;
    rdk_topic *topic = rdk->topic_new(w->handle, name, NULL);
    rdk_error *error = rdk->init_transactions(w->handle, 30000);
    if (!error) error = rdk->begin_transaction(w->handle);
    if (!error && write_rows(w, topic, ROWS) != ROWS) return 1;
    if (!error) error = writer_send_offset(w, "group", name, 0, 7, "marker", 30000);
    if (!error) error = rdk->commit_transaction(w->handle, 30000);
    int code = error ? rdk->error_code(error) : 0;
    if (error) rdk->error_destroy(error);
    rdk->topic_destroy(topic);
    writer_close(w);
    return code;
}

int main(int argc, char **argv) {
    char why[512];
    rdk_api rdk;
    range_failure failure;
    if (argc != 5 || !dlopen(argv[1], RTLD_NOW)) return 2;
    if (rdk_bind(&rdk, argv[1], why, sizeof why)) return fprintf(stderr, "%s\n", why), 2;
    /* the writers note everything: "no error" cannot be suspect, a time-out is */
    const int suspect[] = {-192, 0};
    const char *settings[] = {"bootstrap.servers", argv[2], "message.max.bytes", "4000",
                              "queue.buffering.max.messages", "300", NULL};
    const char *away[] = {"bootstrap.servers", "127.0.0.1:1", "message.timeout.ms", "300",
                          "log_level", "7", NULL};
    const char *wrong[] = {"linger.ms", "never", NULL};
    fill();
    if (writer_open(&rdk, wrong, suspect, &failure)) return 3;
    writer *w = writer_open(&rdk, settings, suspect, &failure);
    writer *lost = writer_open(&rdk, away, suspect, &failure);
    if (!w || !lost) return fprintf(stderr, "%s\n", failure.text), 3;
    rdk_topic *topic = rdk.topic_new(w->handle, argv[3], NULL);
    rdk_topic *nowhere = rdk.topic_new(lost->handle, argv[3], NULL);
    long long handed = write_rows(w, topic, atoll(argv[4]));
    int code = refused(w, topic);
    batch.n_children = batch_schema.n_children = 2; /* key and value alone */
    if (write_rows(w, topic, handed) != handed) return 7;
    batch.n_children = batch_schema.n_children = 5;
    rdk.flush(w->handle, 30000);
    printf("%lld %d %d\n", handed, code, rdk.outq_len(w->handle));
    write_rows(lost, nowhere, ROWS);
    rdk.flush(lost->handle, 5000);
    if (!lost->noted || !lost->reports || lost->worst) return 4;
    write_rows(lost, nowhere, ROWS);
    if (commit_one(&rdk, argv[2], argv[3])) return 5;
    outgoing rows;
    if (outgoing_open(&rows, &batch_schema, &batch)) return 6;
    if (!check_sums(&rows, &(out_bytes){argv[3], strlen(argv[3])})) return 6;
    rdk.topic_destroy(topic);
    rdk.topic_destroy(nowhere);
    writer_forget(w);
    writer_close(w);
    writer_close(lost);
    return 0;
}
