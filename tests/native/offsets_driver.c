/* Asks for the offsets of many partitions in several requests at once, for a partition
 * that does not exist, and where nobody is, without Python: for valgrind and sanitizers.
 *
 * Arguments: librdkafka's path, its addresses, topic, partitions; partition n has n
 * records. Prints "right unknown away": how many ends are right, and the codes of the
 * other two. Requests are also given up before their answers come. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "offsets.h"

enum { MOST = 100, LARGEST = 7 };

static void wait_for(offset_request *request) {
    while (!offsets_wait(request, 20)) client_listen(request->client);
    offsets_close(request); /* harmless */
}

static int right_ends(client *c, const char *topic, int count) {
    asked_offset asked[MOST];
    offset_request requests[MOST];
    int sent = 0, right = 0;
    for (int i = 0; i < count; i++)
        asked[i] = (asked_offset){
            .topic = topic, .partition = count - 1 - i, .wanted = RDK_OFFSET_LATEST};
    for (int first = 0; first < count; first += LARGEST) {
        int rest = count - first, size = rest < LARGEST ? rest : LARGEST;
        offsets_ask(&requests[sent++], c, &asked[first], (size_t)size, 0, 20000);
    }
    for (int i = sent; i--;) wait_for(&requests[i]);
    for (int i = 0; i < count; i++)
        right += !asked[i].err && asked[i].offset == asked[i].partition;
    return right;
}

static int code_of(client *c, const char *topic, int32_t partition) {
    asked_offset one = {
        .topic = topic, .partition = partition, .wanted = RDK_OFFSET_EARLIEST};
    offset_request request;
    offsets_ask(&request, c, &one, 1, 1, 500);
    wait_for(&request);
    if (request.err) return request.err;
    return one.err || one.offset >= -1 ? one.err : RDK_ERR_TIMED_OUT;
}

static void give_up(client *c, const char *topic) {
    asked_offset one = {.topic = topic, .wanted = RDK_OFFSET_LATEST};
    offset_request request;
    offsets_ask(&request, c, &one, 1, 0, 300);
    offsets_close(&request);
}

int main(int argc, char **argv) {
    char why[512];
    rdk_api rdk;
    range_failure failure;
    if (argc != 5 || atoi(argv[4]) > MOST || !dlopen(argv[1], RTLD_NOW)) return 2;
    if (rdk_bind(&rdk, argv[1], why, sizeof why)) return fprintf(stderr, "%s\n", why), 2;
    const char *settings[] = {"bootstrap.servers", argv[2], NULL};
    const char *away[] = {"bootstrap.servers", "127.0.0.1:1", NULL};
    client *used = client_open(&rdk, settings, &failure);
    client *lost = client_open(&rdk, away, &failure);
    if (!used || !lost) return fprintf(stderr, "%s\n", failure.text), 2;
    give_up(used, argv[3]);
    int right = right_ends(used, argv[3], atoi(argv[4]));
    int unknown = code_of(used, argv[3], 9999);
    printf("%d %d %d\n", right, unknown, code_of(lost, argv[3], 0));
    give_up(used, argv[3]);
    give_up(lost, argv[3]);
    client_close(used);
    client_close(lost);
    return 0;
}
