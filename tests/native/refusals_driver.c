/* Writes records that a broker refuses on their own, without Python: for valgrind and
 * sanitizers, which see if a text of librdkafka is read after its end.
 *
 * Arguments: librdkafka's path, its addresses, and for every record `topic partition
 * code key timestamp value-size`: the code with which it must be refused, and "" for no
 * key.
 * Each is written alone and together with others, by writers that note it and by those
 * that keep the worst. Prints how many were refused. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "writer.h"

enum { TOGETHER = 40, WAIT_MS = 30000 };

static char filling[100000];

/* How many were refused; -1: with another text than that of the code, or a lone one with
 * another code. A text may lie on the stack of a thread, where no sanitizer sees it. */
static int texts_of(const writer *w, int code, int copies) {
    int count = 0;
    const told_record *lists[] = {w->noted, w->worst};
    for (size_t i = 0; i < 2; i++)
        for (const told_record *told = lists[i]; told; told = told->next) {
            const char *text = told->code ? w->rdk->err2str(told->code) : "";
            if (strcmp(told->text, text)) return -1;
            if (copies == 1 && told->code != code) return -1;
            count += told->code != 0;
        }
    return count;
}

static int refused(const rdk_api *rdk, const char *const *settings, const int *suspect,
                   char **record, int copies) {
    range_failure failure;
    writer *w = writer_open(rdk, settings, suspect, &failure);
    if (!w) return -1;
    rdk_topic *topic = rdk->topic_new(w->handle, record[0], NULL);
    out_bytes key = {*record[3] ? record[3] : NULL, strlen(record[3])};
    out_bytes value = {filling, (size_t)atoi(record[5])};
    for (int i = 0; i < copies; i++)
        if (writer_produce(w, topic, atoi(record[1]), key, value, atoll(record[4]), NULL))
            return -1;
    rdk->flush(w->handle, WAIT_MS);
    int count = texts_of(w, atoi(record[2]), copies);
    rdk->topic_destroy(topic);
    writer_forget(w);
    writer_close(w);
    return count;
}

int main(int argc, char **argv) {
    char why[512];
    rdk_api rdk;
    int total = 0;
    if (argc < 9 || !dlopen(argv[1], RTLD_NOW)) return 2;
    if (rdk_bind(&rdk, argv[1], why, sizeof why)) return fprintf(stderr, "%s\n", why), 2;
    const char *settings[] = {"bootstrap.servers", argv[2], "linger.ms", "20",
                              "enable.idempotence", "false",
                              "topic.metadata.propagation.max.ms", "500", NULL};
    memset(filling, 'x', sizeof filling);
    for (char **record = argv + 3; *record; record += 6) {
        const int its_own[] = {atoi(record[2]), 0}, none[] = {0};
        for (int copies = 1; copies <= TOGETHER; copies *= TOGETHER) {
            int noted = refused(&rdk, settings, its_own, record, copies);
            int worst = refused(&rdk, settings, none, record, copies);
            if (noted < 1 || worst != 1) {
                fprintf(stderr, "%s: %d noted, %d kept\n", record[0], noted, worst);
                return 3;
            }
            total++;
        }
    }
    printf("%d\n", total);
    return 0;
}
