#include "check_sum.h"

#include <string.h>

enum { SLICES = 8, POLYNOMIAL = (int)0xEDB88320 };

static uint32_t tables[SLICES][256];

/* Filled when the extension is loaded, before any thread can use it. */
__attribute__((constructor)) static void fill_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? (uint32_t)POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (int slice = 1; slice < SLICES; slice++)
        for (int i = 0; i < 256; i++) {
            uint32_t former = tables[slice - 1][i];
            tables[slice][i] = former >> 8 ^ tables[0][former & 0xFF];
        }
}

/* As zlib's crc32(). */
static uint32_t crc32_of(uint32_t crc, const void *data, size_t size) {
    const uint8_t *at = data;
    crc = ~crc;
    for (; size >= SLICES; size -= SLICES, at += SLICES) {
        uint32_t next = 0;
        for (int i = 0; i < SLICES; i++) {
            uint8_t byte = at[i] ^ (i < 4 ? (uint8_t)(crc >> 8 * i) : 0);
            next ^= tables[SLICES - 1 - i][byte];
        }
        crc = next;
    }
    while (size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *at++) & 0xFF];
    return ~crc;
}

static uint32_t add_numbers(uint32_t crc, const int64_t *numbers, size_t count) {
    uint8_t bytes[8 * 6];
    for (size_t i = 0; i < 8 * count; i++)
        bytes[i] = (uint8_t)((uint64_t)numbers[i / 8] >> 8 * (i % 8));
    return crc32_of(crc, bytes, 8 * count);
}

static uint32_t add_bytes(uint32_t crc, out_bytes bytes) {
    return bytes.data ? crc32_of(crc, bytes.data, bytes.size) : crc;
}

static int64_t length_of(out_bytes bytes) {
    return bytes.data ? (int64_t)bytes.size : -1;
}

static uint32_t add_header(uint32_t crc, const outgoing *rows, int64_t at) {
    out_bytes key = out_bytes_at(&rows->header_key, at);
    out_bytes value = out_bytes_at(&rows->header_value, at);
    int64_t lengths[] = {length_of(key), length_of(value)};
    crc = add_numbers(crc, lengths, 2);
    return add_bytes(add_bytes(crc, key), value);
}

static uint32_t check_sum(const outgoing *rows, const out_bytes *topics, int64_t row) {
    out_bytes topic = topics[rows->topic.values ? out_int32(&rows->topic, row) : 0];
    out_bytes key = out_bytes_at(&rows->key, row);
    out_bytes value = out_bytes_at(&rows->value, row);
    int64_t partition = -1, time = INT64_MIN, header = 0, end = 0;
    if (!out_is_null(&rows->partition, row))
        partition = out_int32(&rows->partition, row);
    if (!out_is_null(&rows->timestamp_ms, row))
        time = out_int64(&rows->timestamp_ms, row);
    if (!out_is_null(&rows->headers, row)) {
        header = out_offset(&rows->headers, row);
        end = out_offset(&rows->headers, row + 1);
    }
    int64_t numbers[] = {length_of(topic), length_of(key), length_of(value),
                         partition,        time,           end - header};
    uint32_t crc = add_bytes(add_numbers(0, numbers, 6), topic);
    for (; header < end; header++)
        crc = add_header(crc, rows, header);
    return add_bytes(add_bytes(crc, key), value);
}

uint64_t check_sums(const outgoing *rows, const out_bytes *topics) {
    uint64_t sum = 0;
    for (int64_t row = 0; row < rows->rows; row++)
        sum += check_sum(rows, topics, row);
    return sum;
}
