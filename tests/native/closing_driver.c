/* Closes clients of a librdkafka that ends them at once, late or never, without Python:
 * also for sanitizers and valgrind.
 *
 * Many end just when the caller stops waiting. Those that never end do so when all callers
 * are back. Prints "ended in-place threads seconds": how many clients were ended, how many
 * by their callers, the threads that are left, and the longest a caller waited. A signal
 * ends the program if a caller waits for ever. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

enum { QUICK = 100, LATE = 40, NEVER = 4, IN_PLACE = 3, LIMIT_S = 30 };
enum { EDGE_US = 4990000, STEP_US = 500 }; /* around the end of the patience */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_t main_thread;
static atomic_int ended, ended_in_place;

static void end_late(rdk_client *handle, int flags) {
    int for_us = *(int *)handle;
    (void)flags;
    if (for_us > 0) usleep((useconds_t)for_us);
    if (for_us < 0) {
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    free(handle);
    ended_in_place += pthread_equal(pthread_self(), main_thread) != 0;
    ended++;
}

static void end_queue(rdk_queue *queue) { free(queue); }

static const rdk_api fake = {.destroy_flags = end_late, .queue_destroy = end_queue};

static double close_one(int for_us) {
    struct timespec before, after;
    client *c = calloc(1, sizeof *c);
    int *handle = malloc(sizeof *handle);
    *handle = for_us;
    c->rdk = &fake;
    c->handle = (rdk_client *)handle;
    c->logs = malloc(1);
    c->made_by = getpid();
    clock_gettime(CLOCK_MONOTONIC, &before);
    client_close(c);
    clock_gettime(CLOCK_MONOTONIC, &after);
    return (double)(after.tv_sec - before.tv_sec) +
           (double)(after.tv_nsec - before.tv_nsec) / 1e9;
}

static void *in_thread(void *for_us) {
    double *waited_s = malloc(sizeof *waited_s);
    *waited_s = close_one(*(int *)for_us);
    return waited_s;
}

static double close_at_once(void) {
    int for_us[LATE + NEVER];
    pthread_t callers[LATE + NEVER];
    double longest_s = 0;
    for (int i = 0; i < LATE + NEVER; i++) {
        for_us[i] = i < LATE ? EDGE_US + i * STEP_US : -1;
        pthread_create(&callers[i], NULL, in_thread, &for_us[i]);
    }
    for (int i = 0; i < LATE + NEVER; i++) {
        void *waited_s;
        pthread_join(callers[i], &waited_s);
        if (*(double *)waited_s > longest_s) longest_s = *(double *)waited_s;
        free(waited_s);
    }
    return longest_s;
}

/* No thread can be made, as no stack is so large. */
static void close_without_threads(void) {
    pthread_attr_t usual, huge;
    pthread_getattr_default_np(&usual);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 46);
    pthread_setattr_default_np(&huge);
    for (int i = 0; i < IN_PLACE; i++) close_one(0);
    pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
}

static int threads(void) {
    int count = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    while ((entry = readdir(tasks))) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

int main(void) {
    alarm(LIMIT_S);
    main_thread = pthread_self();
    int before = threads(); /* a sanitizer may have one */
    close_without_threads();
    for (int i = 0; i < QUICK; i++)
        if (close_one(0) > 1) return fprintf(stderr, "not at once\n"), 2;
    if (ended != IN_PLACE + QUICK) return fprintf(stderr, "not closed yet\n"), 2;
    pthread_mutex_lock(&gate);
    double longest_s = close_at_once();
    pthread_mutex_unlock(&gate);
    while (ended < IN_PLACE + QUICK + LATE + NEVER || threads() > before) usleep(1000);
    printf("%d %d %d %.0f\n", ended, ended_in_place, threads() - before, longest_s);
    return 0;
}
