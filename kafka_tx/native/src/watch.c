#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

/* A broker that goes down can break one handshake; a wrong set-up breaks them all. */
enum { DOUBTFUL_BEFORE_GIVING_UP = 3 };

/* Whether the word, up to a blank, has a colon and a digit: host:port and the like. */
static int is_address(const char *word) {
    for (; *word && *word != ' '; word++)
        if (word[0] == ':' && word[1] >= '0' && word[1] <= '9') return 1;
    return 0;
}

/* The text without addresses: a host may be called what it likes. */
static void without_addresses(const char *text, char *out, size_t size) {
    size_t length = 0;
    while (*text && length + 1 < size) {
        size_t word = strcspn(text, " ") + 1;
        int is_last = !text[word - 1];
        for (size_t i = 0; !is_address(text) && i < word - is_last; i++)
            if (length + 1 < size) out[length++] = text[i];
        text += word - is_last;
    }
    out[length] = 0;
}

static int is_certain_refusal(int code, const char *said) {
    char text[512];
    without_addresses(said, text, sizeof text);
    if (strcasestr(text, "certificate") || strcasestr(text, "ssl/tls alert")) return 1;
    /* A connection that ended during the handshake is reported with the same code; so
     * is a new token that comes within a second of the one before. */
    if (strcasestr(text, "local: ") || strcasestr(text, "current sasl state")) return 0;
    return code == RDK_ERR_AUTHENTICATION;
}

void watch_error(rdk_client *client, int code, const char *text, void *opaque) {
    watch *w = opaque;
    (void)client;
    if (!text) text = "";
    if (code != RDK_ERR_ALL_BROKERS_DOWN) { /* repeats the others, less clearly */
        w->code = code;
        snprintf(w->error, sizeof w->error, "%s", text);
    }
    if (is_certain_refusal(code, text))
        w->denied_code = code;
    else if (code == RDK_ERR_AUTHENTICATION || code == RDK_ERR_SSL)
        if (++w->doubtful >= DOUBTFUL_BEFORE_GIVING_UP) w->denied_code = code;
}

void watch_log(watch *w, const char *facility, const char *line) {
    if (strcmp(facility, "FAIL")) return;
    const char *text = strstr(line, "]: "); /* behind the name of a thread */
    snprintf(w->log_line, sizeof w->log_line, "%s", text ? text + 3 : line);
}

/* The number behind `name`, looked for behind `from`; -1 where there is none. */
static int64_t number_behind(const char *from, const char *name) {
    const char *at = from ? strstr(from, name) : NULL;
    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

int watch_statistics(rdk_client *client, char *json, size_t size, void *opaque) {
    watch *w = opaque;
    (void)client;
    (void)size; /* the text ends with a NUL */
    const char *only_partition = strstr(json, "\"desired\":true");
    int64_t next_offset = number_behind(only_partition, "\"next_offset\":");
    if (next_offset > w->fetched_to) w->fetched_to = next_offset;
    int64_t partial = 0;
    for (const char *at = json; (at = strstr(at, "\"rxpartial\":")); at++)
        partial += number_behind(at, "\"rxpartial\":");
    w->partial = partial;
    return 0; /* librdkafka frees the text */
}

void watch_trouble(watch *w, int code, const char *text) {
    w->code = code;
    snprintf(w->trouble, sizeof w->trouble, "%s", text);
}

void watch_answered(watch *w) {
    w->code = w->denied_code = w->doubtful = 0;
    w->error[0] = w->trouble[0] = w->log_line[0] = '\0';
}

const char *watch_reason(const watch *w) {
    if (w->trouble[0]) return w->trouble;
    return w->error[0] ? w->error : w->log_line;
}
