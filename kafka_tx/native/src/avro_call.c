/* decode_avro(): programs over a column of Python's, into a column of Python's. */
#include <stdlib.h>
#include <string.h>

#include "avro_decode.h"
#include "module.h"

/* Rows that have no value. */
typedef struct {
    int64_t row;
    int32_t reason, detail;
} failure;

typedef struct {
    /* what is read, of which Python's arguments are the owners */
    int64_t rows, first;
    const uint8_t *valid;
    const int32_t *ends;
    const uint8_t *bytes;
    const int32_t *begins, *chosen;
    avro_program *programs;
    uint8_t *checked; /* which of them are known to be right */
    Py_ssize_t program_count;
    /* what is made */
    avro_slots slots;
    failure *failures;
    size_t failed, failure_room;
} decoding;

/* --- the work, without Python ------------------------------------------------------ */

static int note(decoding *d, int64_t row, int reason, int32_t detail) {
    if (d->failed == d->failure_room) {
        size_t room = d->failure_room ? 2 * d->failure_room : 16;
        failure *more = realloc(d->failures, room * sizeof *more);
        if (!more) return SLOTS_NO_MEMORY;
        d->failures = more;
        d->failure_room = room;
    }
    d->failures[d->failed++] = (failure){row, reason, detail};
    return 0;
}

static int decode_row(decoding *d, int64_t row) {
    int64_t at = d->first + row;
    int32_t chosen = d->chosen[row], begin = d->begins[row], detail;
    if (chosen < 0) return slots_null(&d->slots, 0);
    int is_there = !d->valid || d->valid[at / 8] >> at % 8 & 1;
    int64_t start = d->ends[at], size = d->ends[at + 1] - start;
    if (chosen >= d->program_count || !is_there || begin < 0 || begin > size)
        return SLOTS_WRONG;
    if (!d->checked[chosen]) {
        int wrong = avro_check(&d->programs[chosen], &d->slots);
        if (wrong) return wrong;
        d->checked[chosen] = 1;
    }
    int reason = avro_decode(&d->programs[chosen], &d->slots, d->bytes + start + begin,
                             (size_t)(size - begin), &detail);
    if (reason <= 0) return reason;
    int result = slots_null(&d->slots, 0);
    return result ? result : note(d, row, reason, detail);
}

static int decode_rows(decoding *d) {
    int result = 0;
    for (int64_t row = 0; row < d->rows && !result; row++)
        result = decode_row(d, row);
    return result;
}

static int decode_all(decoding *d, struct ArrowArray *out) {
    int result = decode_rows(d);
    return result ? result : slots_export(&d->slots, out);
}

/* --- Python's side ----------------------------------------------------------------- */

static PyObject *raise_wrong(const char *text) {
    PyErr_Format(PyExc_ValueError, "decode_avro: %s", text);
    return NULL;
}

/* Binary rows; `array` stays the owner. */
static int open_values(decoding *d, PyObject *schema_capsule, PyObject *array_capsule) {
    const struct ArrowSchema *schema =
        PyCapsule_GetPointer(schema_capsule, "arrow_schema");
    if (!schema) return -1;
    const struct ArrowArray *array = PyCapsule_GetPointer(array_capsule, "arrow_array");
    if (!array) return -1;
    if (strcmp(schema->format, "z") || array->n_buffers != 3) {
        raise_wrong("the values are not binary");
        return -1;
    }
    static const int32_t no_ends[2];
    d->rows = array->length;
    d->first = array->offset;
    d->valid = array->null_count ? array->buffers[0] : NULL;
    d->ends = array->buffers[1] ? array->buffers[1] : no_ends;
    d->bytes = array->buffers[2] ? array->buffers[2] : (const uint8_t *)"";
    return 0;
}

/* 32-bit integers that lie where a processor can read them. */
static const int32_t *integers(const Py_buffer *given, Py_ssize_t *count) {
    *count = given->len / (Py_ssize_t)sizeof(int32_t);
    if (given->len % sizeof(int32_t) || (uintptr_t)given->buf % sizeof(int32_t)) {
        raise_wrong("no array of 32-bit integers");
        return NULL;
    }
    return given->buf;
}

static int open_rows(decoding *d, const Py_buffer *begins, const Py_buffer *chosen) {
    Py_ssize_t count, same;
    d->begins = integers(begins, &count);
    d->chosen = integers(chosen, &same);
    if (!d->begins || !d->chosen) return -1;
    if (count == d->rows && same == d->rows) return 0;
    raise_wrong("not one number for each row");
    return -1;
}

/* The tuple of pairs of bytes keeps them alive. */
static int open_program(avro_program *program, PyObject *pair) {
    char *code, *constants;
    Py_ssize_t size, constant_bytes;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        raise_wrong("a program is no pair of bytes");
        return -1;
    }
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(pair, 0), &code, &size) ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(pair, 1), &constants, &constant_bytes))
        return -1;
    Py_buffer words = {.buf = code, .len = size};
    Py_ssize_t count;
    program->code = integers(&words, &count);
    program->words = (size_t)count;
    program->constants = (const uint8_t *)constants;
    program->constant_bytes = (size_t)constant_bytes;
    return program->code ? 0 : -1;
}

static int open_programs(decoding *d, PyObject *programs) {
    d->program_count = PyTuple_Size(programs);
    d->programs = calloc((size_t)d->program_count + 1, sizeof *d->programs);
    d->checked = calloc((size_t)d->program_count + 1, 1);
    if (!d->programs || !d->checked) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < d->program_count; i++)
        if (open_program(&d->programs[i], PyTuple_GetItem(programs, i))) return -1;
    return 0;
}

static PyObject *raise_result(int result) {
    if (result == SLOTS_NO_MEMORY) return PyErr_NoMemory();
    if (result == SLOTS_WRONG) return raise_wrong("the program and its column differ");
    PyErr_SetString(PyExc_OverflowError,
                    "decode_avro: a column has 2^31 bytes or values; read smaller batches");
    return NULL;
}

static void drop_array(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release) array->release(array);
    free(array);
}

/* Takes what `made` owns, also where it fails. */
static PyObject *capsule_of(struct ArrowArray *made) {
    struct ArrowArray *kept = malloc(sizeof *kept);
    PyObject *capsule = NULL;
    if (kept) {
        *kept = *made;
        capsule = PyCapsule_New(kept, "arrow_array", drop_array);
    } else {
        PyErr_NoMemory();
    }
    if (!capsule) {
        made->release(made);
        free(kept);
    }
    return capsule;
}

static PyObject *failures_of(const decoding *d) {
    PyObject *list = PyList_New((Py_ssize_t)d->failed);
    for (size_t i = 0; list && i < d->failed; i++) {
        const failure *one = &d->failures[i];
        PyObject *found =
            Py_BuildValue("(Lii)", (long long)one->row, one->reason, one->detail);
        if (!found || PyList_SetItem(list, (Py_ssize_t)i, found)) Py_CLEAR(list);
    }
    return list;
}

static PyObject *decoded(decoding *d) {
    struct ArrowArray made;
    int result;
    Py_BEGIN_ALLOW_THREADS result = decode_all(d, &made);
    Py_END_ALLOW_THREADS if (result) return raise_result(result);
    PyObject *capsule = capsule_of(&made);
    PyObject *failures = capsule ? failures_of(d) : NULL;
    if (failures) return Py_BuildValue("(NN)", capsule, failures);
    Py_XDECREF(capsule);
    return NULL;
}

static PyObject *decode(decoding *d, PyObject *programs, const Py_buffer *layout) {
    Py_ssize_t words;
    const int32_t *tree = integers(layout, &words);
    if (!tree || open_programs(d, programs)) return NULL;
    slots_result result = slots_init(&d->slots, tree, (size_t)words);
    return result ? raise_result(result) : decoded(d);
}

PyObject *decode_avro(PyObject *module, PyObject *args) {
    PyObject *schema, *array, *programs, *answer = NULL;
    Py_buffer begins, chosen, layout;
    decoding d;
    (void)module;
    memset(&d, 0, sizeof d);
    if (!PyArg_ParseTuple(args, "OOy*y*O!y*:decode_avro", &schema, &array, &begins,
                          &chosen, &PyTuple_Type, &programs, &layout))
        return NULL;
    if (!open_values(&d, schema, array) && !open_rows(&d, &begins, &chosen))
        answer = decode(&d, programs, &layout);
    slots_free(&d.slots);
    free(d.failures);
    free(d.programs);
    free(d.checked);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&chosen);
    PyBuffer_Release(&layout);
    return answer;
}
