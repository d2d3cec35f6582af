#include "client.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "old_glibc.h"

OLD_VERSION(pthread_create, "2.2.5", "2.17");
OLD_VERSION(pthread_detach, "2.2.5", "2.17");
OLD_VERSION(pthread_join, "2.2.5", "2.17");

static rdk_conf *make_conf(client *c, const char *const *settings,
                           range_failure *failure) {
    rdk_conf *conf = c->rdk->conf_new();
    char why[sizeof failure->text] = "";
    for (; *settings; settings += 2)
        if (c->rdk->conf_set(conf, settings[0], settings[1], why, sizeof why)) {
            c->rdk->conf_destroy(conf);
            failure_set(failure, FAILURE_SETTINGS, 0, why);
            return NULL;
        }
    c->rdk->conf_set_opaque(conf, &c->watch);
    c->rdk->conf_set(conf, "log.queue", "true", NULL, 0);
    c->rdk->conf_set_error_cb(conf, watch_error);
    c->rdk->conf_set_stats_cb(conf, watch_statistics);
    return conf;
}

static int start(client *c, const char *const *settings, range_failure *failure) {
    char why[sizeof failure->text] = "";
    rdk_conf *conf = make_conf(c, settings, failure);
    if (!conf) return -1;
    c->handle = c->rdk->new(RDK_CONSUMER, conf, why, sizeof why);
    if (!c->handle) {
        c->rdk->conf_destroy(conf); /* a client that exists owns it */
        failure_set(failure, FAILURE_SETTINGS, 0, why);
        return -1;
    }
    c->logs = c->rdk->queue_new(c->handle);
    int code = c->rdk->set_log_queue(c->handle, c->logs);
    if (code) failure_set(failure, FAILURE_FETCH, code, c->rdk->err2str(code));
    return code ? -1 : 0;
}

client *client_open(const rdk_api *rdk, const char *const *settings,
                    range_failure *failure) {
    client *c = calloc(1, sizeof *c);
    if (!c) {
        failure_set(failure, FAILURE_MEMORY, 0, "no memory for a client");
        return NULL;
    }
    c->rdk = rdk;
    c->made_by = getpid();
    c->watch.fetched_to = UNKNOWN_OFFSET;
    if (start(c, settings, failure)) {
        client_close(c);
        return NULL;
    }
    return c;
}

void client_listen(client *c) {
    c->rdk->poll(c->handle, 0);
    rdk_event *event;
    while ((event = c->rdk->queue_poll(c->logs, 0))) {
        const char *facility, *line;
        int level;
        if (!c->rdk->event_log(event, &facility, &line, &level))
            watch_log(&c->watch, facility, line);
        c->rdk->event_destroy(event);
    }
}

int client_bounds(client *c, const char *topic, int32_t partition, int timeout_ms,
                  int64_t *log_start, int64_t *log_end) {
    int code = c->rdk->query_watermark_offsets(c->handle, topic, partition, log_start,
                                               log_end, timeout_ms);
    return code || *log_start < 0 || *log_end < 0 ? -1 : 0;
}

const rdk_metadata *client_describe(client *c, const char *topic, int timeout_ms) {
    const rdk_metadata *found = NULL;
    rdk_topic *handle = c->rdk->topic_new(c->handle, topic, NULL);
    if (!handle) return NULL;
    int code = c->rdk->metadata(c->handle, 0, handle, &found, timeout_ms);
    c->rdk->topic_destroy(handle);
    if (code) return NULL;
    if (found->topic_count == 1 && !found->topics[0].err) return found;
    c->rdk->metadata_destroy(found);
    return NULL;
}

int client_learn(client *c, const char *topic, int timeout_ms) {
    const rdk_metadata *found = NULL;
    rdk_topic *handle = topic ? c->rdk->topic_new(c->handle, topic, NULL) : NULL;
    if (topic && !handle) return -1;
    int code = c->rdk->metadata(c->handle, !topic, handle, &found, timeout_ms);
    if (handle) c->rdk->topic_destroy(handle);
    if (code) return -1;
    if (topic && found->topic_count == 1) code = found->topics[0].err;
    c->rdk->metadata_destroy(found);
    return code ? -1 : 0;
}

/* --- closing ---------------------------------------------------------------------- */

enum { PATIENCE_S = 5 };

#if _POSIX_CLOCK_SELECTION > 0 /* not on macOS */
OLD_VERSION(pthread_condattr_setclock, "2.3.3", "2.17");
enum { CLOCK = CLOCK_MONOTONIC };
#else
enum { CLOCK = CLOCK_REALTIME };
#endif

/* What the caller and the thread that closes share; the last of them frees it. */
typedef struct {
    client *client;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_closed; /* the caller, who waits, joins the thread and frees */
    int is_left;   /* nobody waits any more: the thread frees */
} closing;

static closing *closing_new(client *c) {
    closing *of = calloc(1, sizeof *of);
    pthread_condattr_t attributes;
    if (!of) return NULL;
    of->client = c;
    pthread_mutex_init(&of->lock, NULL);
    pthread_condattr_init(&attributes);
#if _POSIX_CLOCK_SELECTION > 0
    pthread_condattr_setclock(&attributes, CLOCK);
#endif
    pthread_cond_init(&of->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return of;
}

static void closing_free(closing *of) {
    pthread_cond_destroy(&of->changed);
    pthread_mutex_destroy(&of->lock);
    free(of);
}

static void close_now(client *c) {
    if (c->logs) c->rdk->queue_destroy(c->logs);
    if (c->handle) c->rdk->destroy_flags(c->handle, RDK_DESTROY_NO_CONSUMER_CLOSE);
    free(c);
}

static void *close_in_thread(void *given) {
    closing *of = given;
    close_now(of->client);
    pthread_mutex_lock(&of->lock);
    of->is_closed = 1;
    int is_left = of->is_left;
    pthread_cond_signal(&of->changed);
    pthread_mutex_unlock(&of->lock);
    if (is_left) closing_free(of);
    return NULL;
}

/* Whether it was closed in time; otherwise it is left to its thread. */
static int wait_for(closing *of) {
    struct timespec until;
    int is_over = 0;
    clock_gettime(CLOCK, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&of->lock);
    while (!of->is_closed && !is_over)
        is_over = pthread_cond_timedwait(&of->changed, &of->lock, &until);
    int is_closed = of->is_closed;
    of->is_left = !is_closed;
    pthread_mutex_unlock(&of->lock);
    return is_closed;
}

/* librdkafka 2.16 may never end a client. If a fetch is answered with an offset out of
 * range while the client is destroyed, the thread of the broker locks the partition
 * twice. Fetches ahead of the range may be answered so: behind damaged records, or where
 * records were deleted meanwhile. */
void client_close(client *c) {
    if (c->made_by != getpid()) return;
    pthread_t thread;
    closing *of = closing_new(c);
    if (!of || pthread_create(&thread, NULL, close_in_thread, of)) {
        if (of) closing_free(of);
        close_now(c);
    } else if (wait_for(of)) {
        pthread_join(thread, NULL);
        closing_free(of);
    } else {
        pthread_detach(thread);
    }
}
