/* Reads one range, twice with one client, without Python and prints what it saw: for
 * valgrind and sanitizers.
 *
 * Arguments: librdkafka's path, its addresses, topic, start, end, batch bytes.
 * Prints "rows sum-of-bytes batches last-state"; the last state is 2 (done) or the kind of
 * failure plus 100. Every array is released in another order than it was made in. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "range.h"

static long long bytes_of(const struct ArrowArray *binary) {
    const int32_t *ends = binary->buffers[1];
    const uint8_t *bytes = binary->buffers[2];
    long long sum = 0;
    for (int32_t i = ends[0]; i < ends[binary->length]; i++) sum += bytes[i];
    return sum;
}

/* Take every other column out of the batch, as a consumer may, and release it last. */
static void release_in_parts(struct ArrowArray *batch) {
    struct ArrowArray moved[8];
    int count = 0;
    for (int64_t i = 0; i < batch->n_children; i += 2) {
        moved[count++] = *batch->children[i];
        batch->children[i]->release = NULL;
    }
    batch->release(batch);
    while (count--) moved[count].release(&moved[count]);
}

static int read_and_print(client *used, const range_request *request) {
    struct ArrowArray batch;
    range_failure failure;
    range *reading = range_open(used, request, &failure);
    if (!reading) return fprintf(stderr, "%s\n", failure.text), 0;
    long long rows = 0, sum = 0, batches = 0;
    range_state state;
    while ((state = range_next(reading, &batch, &failure)) < RANGE_DONE) {
        if (state == RANGE_WAITING) continue;
        rows += batch.length;
        sum += bytes_of(batch.children[0]) + bytes_of(batch.children[1]);
        batches++;
        release_in_parts(&batch);
    }
    range_close(reading);
    return printf("%lld %lld %lld %d\n", rows, sum, batches,
                  state == RANGE_FAILED ? 100 + (int)failure.kind : (int)state);
}

int main(int argc, char **argv) {
    char why[512];
    rdk_api rdk;
    range_failure failure;
    if (argc != 7 || !dlopen(argv[1], RTLD_NOW)) return 2;
    if (rdk_bind(&rdk, argv[1], why, sizeof why)) return fprintf(stderr, "%s\n", why), 2;
    const char *settings[] = {"bootstrap.servers", argv[2], "auto.offset.reset", "error",
                              "enable.partition.eof", "true", "check.crcs", "true",
                              "fetch.wait.max.ms", "10", NULL};
    range_request request = {.topic = argv[3], .leader_epoch = -1, .start = atoll(argv[4]),
                             .end = atoll(argv[5]), .batch_bytes = atoll(argv[6]),
                             .has_headers = 1, .timeout_ms = 20000, .grace_ms = 500};
    client *used = client_open(&rdk, settings, &failure);
    if (!used) return fprintf(stderr, "%s\n", failure.text), 2;
    int is_open = read_and_print(used, &request) && read_and_print(used, &request);
    client_close(used);
    return is_open ? 0 : 2;
}
