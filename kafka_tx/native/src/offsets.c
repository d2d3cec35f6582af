#include "offsets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int in_order(const void *left, const void *right) {
    const asked_offset *a = left, *b = right;
    int topics = strcmp(a->topic, b->topic);
    if (topics) return topics;
    return (a->partition > b->partition) - (a->partition < b->partition);
}

static rdk_options *make_options(const rdk_api *rdk, rdk_client *handle,
                                 int is_committed, int timeout_ms) {
    char why[200];
    rdk_options *options = rdk->AdminOptions_new(handle, RDK_LIST_OFFSETS);
    rdk->AdminOptions_set_request_timeout(options, timeout_ms, why, sizeof why);
    rdk_error *error = rdk->AdminOptions_set_isolation_level(options, is_committed);
    if (error) rdk->error_destroy(error);
    return options;
}

void offsets_ask(offset_request *request, client *c, asked_offset *asked, size_t count,
                 int is_committed, int timeout_ms) {
    const rdk_api *rdk = c->rdk;
    *request = (offset_request){.client = c, .asked = asked, .count = count};
    qsort(asked, count, sizeof *asked, in_order);
    rdk_positions *wanted = rdk->topic_partition_list_new((int)count);
    for (size_t i = 0; i < count; i++) {
        asked[i].offset = NOT_ANSWERED;
        asked[i].leader_epoch = -1;
        asked[i].err = 0;
        rdk->topic_partition_list_add(wanted, asked[i].topic, asked[i].partition)
            ->offset = asked[i].wanted;
    }
    rdk_options *options = make_options(rdk, c->handle, is_committed, timeout_ms);
    request->answers = rdk->queue_new(c->handle);
    rdk->ListOffsets(c->handle, wanted, options, request->answers);
    rdk->AdminOptions_destroy(options);
    rdk->topic_partition_list_destroy(wanted);
}

static void take(offset_request *request, const rdk_position *told) {
    const asked_offset key = {.topic = told->topic, .partition = told->partition};
    asked_offset *found = bsearch(&key, request->asked, request->count,
                                  sizeof *request->asked, in_order);
    if (!found) return;
    found->err = told->err;
    found->offset = told->offset;
    found->leader_epoch =
        request->client->rdk->topic_partition_get_leader_epoch(told);
}

static void read_answer(offset_request *request, rdk_event *event) {
    const rdk_api *rdk = request->client->rdk;
    request->err = rdk->event_error(event);
    if (request->err) {
        snprintf(request->text, sizeof request->text, "%s",
                 rdk->event_error_string(event));
        return;
    }
    size_t count = 0;
    const rdk_offsets_result *result = rdk->event_ListOffsets_result(event);
    const rdk_offset_info **told =
        result ? rdk->ListOffsets_result_infos(result, &count) : NULL;
    for (size_t i = 0; i < count; i++)
        take(request, rdk->ListOffsetsResultInfo_topic_partition(told[i]));
}

int offsets_wait(offset_request *request, int wait_ms) {
    const rdk_api *rdk = request->client->rdk;
    if (!request->answers) return 1;
    rdk_event *event = rdk->queue_poll(request->answers, wait_ms);
    if (!event) return 0;
    read_answer(request, event);
    rdk->event_destroy(event);
    offsets_close(request);
    return 1;
}

void offsets_close(offset_request *request) {
    if (request->answers) request->client->rdk->queue_destroy(request->answers);
    request->answers = NULL;
}
