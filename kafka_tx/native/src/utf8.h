/* Text: whether it is UTF-8, and as Java decodes it where it is not. */
#ifndef KAFKA_TX_UTF8_H
#define KAFKA_TX_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Each byte grows at most into the three bytes of U+FFFD. */
enum { UTF8_MAX_GROWTH = 3 };

/* Write `text` to `out` as valid UTF-8 and return the number of bytes written.
 *
 * Bytes that are not UTF-8 become U+FFFD, exactly as many as Java's String gives: one
 * for each byte or truncated sequence, and one for an encoded surrogate. `out` has room
 * for UTF8_MAX_GROWTH * size bytes. */
size_t utf8_from_java(const uint8_t *text, size_t size, uint8_t *out);

/* Whether it is, without surrogates and without longer forms than are needed. */
int utf8_is_valid(const uint8_t *text, size_t size);

#endif
