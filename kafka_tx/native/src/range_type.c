/* The Python type Range.
 *
 * Waiting happens without the interpreter's lock, a slice at a time: between slices
 * signals are looked for and a close() by another thread takes effect.
 */
#include <stdlib.h>
#include <unistd.h>

#include "module.h"
#include "range.h"

typedef struct {
    PyObject_HEAD range *range; /* NULL once closed */
    ClientObject *client;       /* owned as long as the range is open */
    int is_busy;                /* a thread is in next() */
    int is_unwanted;            /* closed meanwhile: that thread has to do it */
} RangeObject;

static int open_range(RangeObject *self, ClientObject *of, const range_request *request,
                      range_failure *failure) {
    of->is_reading = 1; /* no other thread may think that it is free */
    Py_BEGIN_ALLOW_THREADS self->range = range_open(of->client, request, failure);
    Py_END_ALLOW_THREADS of->is_reading = self->range != NULL;
    if (!self->range) return -1;
    Py_INCREF((PyObject *)of);
    self->client = of;
    return 0;
}

static PyObject *Range_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"client",       "topic",       "partition",   "start",
                            "end",          "leader_epoch", "has_headers", "batch_bytes",
                            "timeout_ms",   "grace_ms",    NULL};
    module_state *state = PyType_GetModuleState(type);
    long long start, end, batch_bytes, timeout_ms, grace_ms;
    range_request request = {0};
    range_failure failure;
    ClientObject *of;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O!siLLipLLL:Range", names, state->client_type, &of,
            &request.topic, &request.partition, &start, &end, &request.leader_epoch,
            &request.has_headers, &batch_bytes, &timeout_ms, &grace_ms))
        return NULL;
    if (of->is_reading) {
        PyErr_SetString(PyExc_ValueError, "the client reads another range");
        return NULL;
    }
    request.start = start;
    request.end = end;
    request.batch_bytes = batch_bytes;
    request.timeout_ms = timeout_ms;
    request.grace_ms = grace_ms;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    RangeObject *self = (RangeObject *)allocate(type, 0);
    if (self && open_range(self, of, &request, &failure)) {
        raise_failure(type, &failure);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void close_now(RangeObject *self) {
    range *closing = self->range;
    self->range = NULL;
    if (!closing) return;
    Py_BEGIN_ALLOW_THREADS range_close(closing);
    Py_END_ALLOW_THREADS self->client->is_reading = 0;
    Py_CLEAR(self->client);
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
    if (self->client->client->made_by != getpid()) {
        PyErr_SetString(PyExc_ValueError, "the range was opened by another process");
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
     "Let the client go; harmless at any time, also twice."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Range_slots[] = {
    {Py_tp_doc, "One offset range of one partition, read batch by batch."},
    {Py_tp_new, Range_new},
    {Py_tp_dealloc, Range_dealloc},
    {Py_tp_methods, Range_methods},
    {0, NULL},
};

PyType_Spec range_spec = {
    .name = "kafka_tx.native._reader.Range",
    .basicsize = sizeof(RangeObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = Range_slots,
};
