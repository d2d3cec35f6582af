/* The Python module kafka_tx.native._reader: bind() and Range.
 *
 * Built against CPython's stable ABI, so that one build serves every later version.
 * Waiting happens without the interpreter's lock, a slice at a time: between slices
 * signals are looked for and a close() by another thread takes effect.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "range.h"

static rdk_api librdkafka; /* one per process, like the library itself */
static int is_bound;

static const char *const KIND_NAMES[] = {
    [FAILURE_NONE] = "none",           [FAILURE_SETTINGS] = "settings",
    [FAILURE_RECORD] = "record",       [FAILURE_OUT_OF_RANGE] = "out of range",
    [FAILURE_DENIED] = "denied",       [FAILURE_UNKNOWN_TOPIC] = "unknown topic",
    [FAILURE_TIMED_OUT] = "timed out", [FAILURE_FETCH] = "fetch",
};

typedef struct {
    PyObject *read_error;
} module_state;

static PyObject *raise_failure(PyTypeObject *type, const range_failure *failure) {
    if (failure->kind == FAILURE_MEMORY) return PyErr_NoMemory();
    module_state *state = PyType_GetModuleState(type);
    const char *name = failure->code ? librdkafka.err2name(failure->code) : "";
    PyObject *text = PyUnicode_DecodeUTF8(failure->text,
                                          (Py_ssize_t)strlen(failure->text), "replace");
    if (!text) return NULL;
    PyObject *fields =
        Py_BuildValue("(sisLLLN)", KIND_NAMES[failure->kind], failure->code, name,
                      (long long)failure->position, (long long)failure->log_start,
                      (long long)failure->log_end, text);
    if (fields) PyErr_SetObject(state->read_error, fields);
    Py_XDECREF(fields);
    return NULL;
}

/* --- Range ------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD range *range; /* NULL once closed */
    int is_busy;                /* a thread is in next() */
    int is_unwanted;            /* closed meanwhile: that thread has to do it */
} RangeObject;

/* A new array of the strings' UTF-8, NULL at the end; the tuple keeps them alive. */
static const char **borrow_strings(PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count < 0) return NULL;
    const char **strings = calloc((size_t)count + 1, sizeof *strings);
    if (!strings) return (const char **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        strings[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), &size);
        if (strings[i] && strlen(strings[i]) == (size_t)size) continue;
        if (strings[i])
            PyErr_SetString(PyExc_ValueError, "a setting has a NUL character");
        free(strings);
        return NULL;
    }
    return strings;
}

static PyObject *Range_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"topic",       "partition",   "start",      "end",
                            "has_headers", "batch_bytes", "timeout_ms", "grace_ms",
                            "settings",    NULL};
    long long start, end, batch_bytes, timeout_ms, grace_ms;
    range_request request = {0};
    range_failure failure;
    PyObject *settings;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "siLLpLLLO!:Range", names,
                                     &request.topic, &request.partition, &start, &end,
                                     &request.has_headers, &batch_bytes, &timeout_ms,
                                     &grace_ms, &PyTuple_Type, &settings))
        return NULL;
    if (!is_bound) {
        PyErr_SetString(PyExc_RuntimeError, "bind() has to succeed first");
        return NULL;
    }
    request.start = start;
    request.end = end;
    request.batch_bytes = batch_bytes;
    request.timeout_ms = timeout_ms;
    request.grace_ms = grace_ms;
    const char **strings = borrow_strings(settings);
    if (!strings) return NULL;
    request.settings = strings;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    RangeObject *self = (RangeObject *)allocate(type, 0);
    if (self) {
        Py_BEGIN_ALLOW_THREADS self->range =
            range_open(&librdkafka, &request, &failure);
        Py_END_ALLOW_THREADS if (!self->range) {
            raise_failure(type, &failure);
            Py_CLEAR(self);
        }
    }
    free(strings);
    return (PyObject *)self;
}

static void close_now(RangeObject *self) {
    range *closing = self->range;
    self->range = NULL;
    if (!closing) return;
    Py_BEGIN_ALLOW_THREADS range_close(closing);
    Py_END_ALLOW_THREADS
}

static PyObject *Range_close(RangeObject *self, PyObject *unused) {
    (void)unused;
    if (self->is_busy)
        self->is_unwanted = 1;
    else
        close_now(self);
    Py_RETURN_NONE;
}

static void Range_dealloc(RangeObject *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    close_now(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static void free_array(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release) array->release(array);
    free(array);
}

/* The array as the Arrow PyCapsule interface wants it; takes it over. */
static PyObject *wrap_array(struct ArrowArray *array) {
    struct ArrowArray *owned = malloc(sizeof *owned);
    PyObject *capsule = NULL;
    if (owned) capsule = PyCapsule_New(owned, "arrow_array", free_array);
    if (capsule) {
        *owned = *array;
        return capsule;
    }
    free(owned);
    array->release(array);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

/* Call range_next until it has an answer, a signal came or the range is unwanted. */
static range_state wait_for_next(RangeObject *self, struct ArrowArray *array,
                                 range_failure *failure) {
    range_state state;
    self->is_busy = 1;
    do {
        Py_BEGIN_ALLOW_THREADS state = range_next(self->range, array, failure);
        Py_END_ALLOW_THREADS
    } while (state == RANGE_WAITING && !PyErr_CheckSignals() && !self->is_unwanted);
    self->is_busy = 0;
    return state;
}

static PyObject *Range_next(RangeObject *self, PyObject *unused) {
    (void)unused;
    if (!self->range || self->is_busy) {
        PyErr_SetString(PyExc_ValueError, self->range
                                              ? "the range is in use by another thread"
                                              : "the range is closed");
        return NULL;
    }
    struct ArrowArray array;
    range_failure failure;
    range_state state = wait_for_next(self, &array, &failure);
    if (self->is_unwanted) close_now(self);
    switch (state) {
    case RANGE_BATCH: return wrap_array(&array);
    case RANGE_DONE: Py_RETURN_NONE;
    case RANGE_FAILED: return raise_failure(Py_TYPE((PyObject *)self), &failure);
    case RANGE_WAITING: break;
    }
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the range was closed by another thread");
    return NULL;
}

static PyMethodDef Range_methods[] = {
    {"next", (PyCFunction)Range_next, METH_NOARGS,
     "The next batch as a capsule 'arrow_array'; None at the end of the range."},
    {"close", (PyCFunction)Range_close, METH_NOARGS,
     "Release everything; harmless at any time, also twice."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Range_slots[] = {
    {Py_tp_doc, "One offset range of one partition, read batch by batch."},
    {Py_tp_new, Range_new},
    {Py_tp_dealloc, Range_dealloc},
    {Py_tp_methods, Range_methods},
    {0, NULL},
};

static PyType_Spec Range_spec = {
    .name = "kafka_tx.native._reader.Range",
    .basicsize = sizeof(RangeObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = Range_slots,
};

/* --- module ----------------------------------------------------------------------- */

static PyObject *bind(PyObject *module, PyObject *path) {
    (void)module;
    char why[512];
    const char *text = PyUnicode_AsUTF8AndSize(path, NULL);
    if (!text) return NULL;
    rdk_api found;
    if (rdk_bind(&found, text, why, sizeof why)) {
        PyErr_SetString(PyExc_OSError, why);
        return NULL;
    }
    librdkafka = found;
    is_bound = 1;
    return PyUnicode_FromString(librdkafka.version_str());
}

static int execute(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    state->read_error = PyErr_NewExceptionWithDoc(
        "kafka_tx.native._reader.ReadError",
        "args: kind, code, code name, position, log start, log end, text", NULL, NULL);
    if (!state->read_error) return -1;
    if (PyModule_AddObjectRef(module, "ReadError", state->read_error)) return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &Range_spec, NULL);
    if (!type) return -1;
    int result = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return result;
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->read_error);
    return 0;
}

static int clear(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->read_error);
    return 0;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_O,
     "Find librdkafka in or under the shared object at this path; return its version."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_reader", .m_size = sizeof(module_state),
    .m_methods = methods,  .m_slots = slots,    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__reader(void) { return PyModuleDef_Init(&definition); }
