#include "utf8.h"

#include <string.h>

/* Bytes a sequence has after its first byte; -1 where no sequence begins with it. */
static int tail_length(uint8_t lead) {
    if (lead < 0x80) return 0;
    if (lead < 0xC2) return -1;
    if (lead < 0xE0) return 1;
    if (lead < 0xF0) return 2;
    return lead < 0xF5 ? 3 : -1;
}

/* Whether `second` may follow `lead`; surrogates (after ED) are judged as a whole. */
static int is_second(uint8_t lead, uint8_t second) {
    switch (lead) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return second >= 0x80 && second <= 0xBF;
    }
}

/* Length of the longest beginning of a sequence at `text`; sets whether it is whole. */
static size_t sequence(const uint8_t *text, size_t size, int *whole) {
    int tail = tail_length(text[0]);
    size_t length = 1;
    while ((int)length <= tail && length < size) {
        uint8_t next = text[length];
        if (length == 1 ? !is_second(text[0], next) : (next & 0xC0) != 0x80) break;
        length++;
    }
    int is_surrogate = length == 3 && text[0] == 0xED && text[1] >= 0xA0;
    *whole = (int)length == tail + 1 && !is_surrogate;
    return length;
}

/* How many of the first bytes are ASCII. */
static size_t ascii(const uint8_t *text, size_t size) {
    size_t at = 0;
    for (uint64_t eight; at + sizeof eight <= size; at += sizeof eight) {
        memcpy(&eight, text + at, sizeof eight);
        if (eight & 0x8080808080808080) break;
    }
    while (at < size && text[at] < 0x80) at++;
    return at;
}

size_t utf8_from_java(const uint8_t *text, size_t size, uint8_t *out) {
    size_t plain = ascii(text, size);
    memcpy(out, text, plain); /* nearly always all of it */
    uint8_t *to = out + plain;
    for (size_t at = plain; at < size;) {
        int whole;
        size_t length = sequence(text + at, size - at, &whole);
        if (whole) {
            memcpy(to, text + at, length);
            to += length;
        } else {
            memcpy(to, "\xEF\xBF\xBD", 3);
            to += 3;
        }
        at += length;
    }
    return (size_t)(to - out);
}

int utf8_is_valid(const uint8_t *text, size_t size) {
    for (size_t at = ascii(text, size); at < size;) {
        int whole;
        at += sequence(text + at, size - at, &whole);
        if (!whole) return 0;
    }
    return 1;
}
