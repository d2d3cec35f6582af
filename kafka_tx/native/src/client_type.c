/* The Python type Client. */
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* A new array of the pairs' UTF-8, NULL at the end; the tuple keeps them alive. */
static const char **borrow_pairs(PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count < 0) return NULL;
    if (count % 2) {
        PyErr_SetString(PyExc_ValueError, "a setting has no value");
        return NULL;
    }
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

static PyObject *Client_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"settings", NULL};
    range_failure failure;
    PyObject *settings;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!:Client", names, &PyTuple_Type,
                                     &settings))
        return NULL;
    const rdk_api *librdkafka = bound_librdkafka();
    if (!librdkafka) return NULL;
    const char **strings = borrow_pairs(settings);
    if (!strings) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ClientObject *self = (ClientObject *)allocate(type, 0);
    if (self) {
        Py_BEGIN_ALLOW_THREADS self->client =
            client_open(librdkafka, strings, &failure);
        Py_END_ALLOW_THREADS if (!self->client) {
            raise_failure(type, &failure);
            Py_CLEAR(self);
        }
    }
    free(strings);
    return (PyObject *)self;
}

static void Client_dealloc(ClientObject *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    client *closing = self->client;
    if (closing) {
        Py_BEGIN_ALLOW_THREADS client_close(closing);
        Py_END_ALLOW_THREADS
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot Client_slots[] = {
    {Py_tp_doc, "A Kafka client; it closes when it and its range are gone."},
    {Py_tp_new, Client_new},
    {Py_tp_dealloc, Client_dealloc},
    {0, NULL},
};

PyType_Spec client_spec = {
    .name = "kafka_tx.native._reader.Client",
    .basicsize = sizeof(ClientObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = Client_slots,
};
