/* The Python type Client. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "module.h"
#include "topic_id.h"

const char **borrow_pairs(PyObject *tuple) {
    if (PyTuple_Size(tuple) % 2 <= 0) return borrow_strings(tuple);
    PyErr_SetString(PyExc_ValueError, "a setting has no value");
    return NULL;
}

const char **borrow_strings(PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count < 0) return NULL;
    const char **strings = calloc((size_t)count + 1, sizeof *strings);
    if (!strings) return (const char **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        strings[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), &size);
        if (strings[i] && strlen(strings[i]) == (size_t)size) continue;
        if (strings[i])
            PyErr_SetString(PyExc_ValueError, "a setting or name has a NUL character");
        free(strings);
        return NULL;
    }
    return strings;
}

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int refuse_to_wait(PyTypeObject *type, client *c, int64_t until_ms) {
    range_failure failure;
    if (PyErr_CheckSignals()) return -1;
    failure_kind kind = FAILURE_NONE;
    if (c->watch.denied_code)
        kind = FAILURE_DENIED;
    else if (now_ms() > until_ms)
        kind = FAILURE_TIMED_OUT;
    if (kind == FAILURE_NONE) return 0;
    failure_set(&failure, kind, c->watch.denied_code, watch_reason(&c->watch));
    raise_failure(type, &failure);
    return -1;
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

static PyObject *Client_bounds(ClientObject *self, PyObject *args) {
    const char *topic;
    int partition, timeout_ms, refused;
    int64_t log_start = 0, log_end = 0;
    if (!PyArg_ParseTuple(args, "sii:bounds", &topic, &partition, &timeout_ms))
        return NULL;
    Py_BEGIN_ALLOW_THREADS refused = client_bounds(self->client, topic, partition,
                                                   timeout_ms, &log_start, &log_end);
    Py_END_ALLOW_THREADS if (refused) Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)log_start, (long long)log_end);
}

/* Leaders by partition. */
static PyObject *leaders_of(const rdk_topic_metadata *topic) {
    PyObject *leaders = PyDict_New();
    for (int i = 0; leaders && i < topic->partition_count; i++) {
        PyObject *id = PyLong_FromLong(topic->partitions[i].id);
        PyObject *leader = PyLong_FromLong(topic->partitions[i].leader);
        if (!id || !leader || PyDict_SetItem(leaders, id, leader)) Py_CLEAR(leaders);
        Py_XDECREF(id);
        Py_XDECREF(leader);
    }
    return leaders;
}

static PyObject *Client_leaders(ClientObject *self, PyObject *args) {
    const char *topic;
    int timeout_ms;
    const rdk_metadata *found;
    if (!PyArg_ParseTuple(args, "si:leaders", &topic, &timeout_ms)) return NULL;
    Py_BEGIN_ALLOW_THREADS found = client_describe(self->client, topic, timeout_ms);
    Py_END_ALLOW_THREADS if (!found) Py_RETURN_NONE;
    PyObject *leaders = leaders_of(&found->topics[0]);
    self->client->rdk->metadata_destroy(found);
    return leaders;
}

static PyObject *Client_learn_leaders(ClientObject *self, PyObject *args) {
    const char *topic;
    int timeout_ms, refused;
    if (!PyArg_ParseTuple(args, "zi:learn_leaders", &topic, &timeout_ms)) return NULL;
    Py_BEGIN_ALLOW_THREADS refused = client_learn(self->client, topic, timeout_ms);
    Py_END_ALLOW_THREADS return PyBool_FromLong(!refused);
}

static PyObject *Client_topic_id(ClientObject *self, PyObject *args) {
    const char *topic;
    char id[TOPIC_ID_SIZE] = "";
    int timeout_ms;
    topic_id_answer answer;
    if (!PyArg_ParseTuple(args, "si:topic_id", &topic, &timeout_ms)) return NULL;
    Py_BEGIN_ALLOW_THREADS answer = ask_topic_id(self->client, topic, timeout_ms, id);
    Py_END_ALLOW_THREADS if (answer == TOPIC_ID_UNKNOWN) Py_RETURN_NONE;
    return PyUnicode_FromString(id);
}

static PyObject *Client_last_report(ClientObject *self, PyObject *nothing) {
    (void)nothing;
    client_listen(self->client);
    const char *reason = watch_reason(&self->client->watch);
    return PyUnicode_DecodeUTF8(reason, (Py_ssize_t)strlen(reason), "replace");
}

static PyMethodDef Client_methods[] = {
    {"bounds", (PyCFunction)Client_bounds, METH_VARARGS,
     "bounds(topic, partition, timeout_ms): log start and end; None: nobody tells."},
    {"leaders", (PyCFunction)Client_leaders, METH_VARARGS,
     "leaders(topic, timeout_ms): by partition, -1: none; None: nobody tells."},
    {"learn_leaders", (PyCFunction)Client_learn_leaders, METH_VARARGS,
     "learn_leaders(topic, timeout_ms): None: of all topics; False: nobody tells."},
    {"topic_id", (PyCFunction)Client_topic_id, METH_VARARGS,
     "topic_id(topic, timeout_ms): empty: no such topic; None: nobody tells."},
    {"last_report", (PyCFunction)Client_last_report, METH_NOARGS,
     "last_report(): what is wrong, since a broker answered last; or empty."},
    {"list_offsets", (PyCFunction)Client_list_offsets, METH_VARARGS,
     "list_offsets(questions, is_committed, timeout_ms, largest): for each question\n"
     "offsets and epochs, packed, and what failed."},
    {"describe_topics", (PyCFunction)Client_describe_topics, METH_VARARGS,
     "describe_topics(names, timeout_ms): topics and brokers."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Client_slots[] = {
    {Py_tp_methods, Client_methods},
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
