/* Fills and exports columns while each single allocation fails in turn.
 *
 * Linked with --wrap for malloc, calloc and realloc of the code under test. Prints how
 * many allocations a run without failures makes; a sanitizer or valgrind says the rest. */
#include <stdio.h>
#include <string.h>

#include "columns.h"
#include "failing.h"

static column_result fill(columns *c, int rows) {
    char key[16];
    column_result result = COLUMN_OK;
    for (int i = 0; i < rows && !result; i++) {
        snprintf(key, sizeof key, "k%d", i);
        for (int h = 0; h < i % 3 && !result; h++)
            result = columns_add_header(c, h ? "a\xff" : "", h ? key : NULL, h);
        if (!result)
            result = columns_add(c, i % 4 ? key : NULL, strlen(key), i % 5 ? key : NULL, 1,
                                 i, i * 1000, 0);
    }
    return result;
}

static column_result run(int has_headers) {
    columns c;
    struct ArrowArray first, second;
    int exported = 0;
    columns_init(&c, "topic", 3, has_headers);
    column_result result = fill(&c, has_headers ? 150 : 0);
    if (!result) result = columns_export(&c, &first);
    if (!result) exported = 1, result = fill(&c, has_headers ? 400 : 0);
    if (!result) result = columns_export(&c, &second);
    if (!result) second.release(&second);
    columns_free(&c); /* before the array that shares its constants */
    if (exported) first.release(&first);
    return result;
}

int main(void) {
    for (int has_headers = 0; has_headers < 2; has_headers++) {
        allocations = until_failure = 0;
        if (run(has_headers) != COLUMN_OK) return 1;
        long needed = allocations;
        for (long n = 1; n <= needed; n++) {
            allocations = 0;
            until_failure = n;
            if (run(has_headers) != COLUMN_NO_MEMORY) return 2;
        }
        printf("%ld ", needed);
    }
    return 0;
}
