/* Names from older versions of glibc, so that what is built here runs on older systems.
 *
 * Since glibc 2.34 some functions have a new version and nothing else new; the old one is
 * there too. OLD_VERSION(function, x86_64's, aarch64's) asks for the old one. */
#ifndef KAFKA_TX_OLD_GLIBC_H
#define KAFKA_TX_OLD_GLIBC_H

#include <limits.h> /* for __GLIBC__ */

#if defined(__GLIBC__) && defined(__x86_64__)
#define OLD_VERSION(name, x86_64, aarch64)                                             \
    __asm__(".symver " #name ", " #name "@GLIBC_" x86_64)
#elif defined(__GLIBC__) && defined(__aarch64__)
#define OLD_VERSION(name, x86_64, aarch64)                                             \
    __asm__(".symver " #name ", " #name "@GLIBC_" aarch64)
#else
#define OLD_VERSION(name, x86_64, aarch64) _Static_assert(1, "no other version")
#endif

#endif
