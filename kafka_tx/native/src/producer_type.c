/* The Python type Producer. Its calls wait without the interpreter's lock. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check_sum.h"
#include "module.h"
#include "writer.h"

typedef struct {
    PyObject_HEAD writer *writer;
    int *suspect; /* of the writer */
    int is_busy;  /* a thread is in a call */
} ProducerObject;

/* --- life ------------------------------------------------------------------------- */

/* A new array of the numbers of a tuple, 0 at the end. */
static int *codes_of(PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    int *codes = calloc((size_t)count + 1, sizeof *codes);
    if (!codes) return (int *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++)
        codes[i] = (int)PyLong_AsLong(PyTuple_GetItem(tuple, i));
    if (!PyErr_Occurred()) return codes;
    free(codes);
    return NULL;
}

static PyObject *Producer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"settings", "suspect", NULL};
    range_failure failure;
    PyObject *settings, *suspect;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!:Producer", names,
                                     &PyTuple_Type, &settings, &PyTuple_Type, &suspect))
        return NULL;
    const rdk_api *librdkafka = bound_librdkafka();
    if (!librdkafka) return NULL;
    int *codes = codes_of(suspect);
    const char **strings = codes ? borrow_pairs(settings) : NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    ProducerObject *self = strings ? (ProducerObject *)allocate(type, 0) : NULL;
    if (!self) {
        free(codes);
    } else {
        self->suspect = codes;
        Py_BEGIN_ALLOW_THREADS self->writer =
            writer_open(librdkafka, strings, codes, &failure);
        Py_END_ALLOW_THREADS if (!self->writer) {
            raise_failure(type, &failure);
            Py_CLEAR(self);
        }
    }
    free(strings);
    return (PyObject *)self;
}

static void Producer_dealloc(ProducerObject *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->writer) {
        Py_BEGIN_ALLOW_THREADS writer_close(self->writer);
        Py_END_ALLOW_THREADS
    }
    free(self->suspect);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Take the writer for a call; NULL and an exception where it cannot be used. */
static writer *enter(ProducerObject *self) {
    const char *why = NULL;
    if (self->is_busy) why = "the producer is in use by another thread";
    if (self->writer->made_by != getpid()) why = "another process made the producer";
    if (why) {
        PyErr_SetString(PyExc_ValueError, why);
        return NULL;
    }
    self->is_busy = 1;
    return self->writer;
}

static void leave(ProducerObject *self) { self->is_busy = 0; }

static PyObject *text_of(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* --- sending ---------------------------------------------------------------------- */

static void drop_topics(writer *w, rdk_topic **topics, Py_ssize_t count) {
    for (Py_ssize_t i = 0; topics && i < count; i++)
        if (topics[i]) w->rdk->topic_destroy(topics[i]);
    free(topics);
}

/* Handles for the names, NULL where one cannot be a topic's; NULL and an exception. */
static rdk_topic **topics_of(writer *w, PyObject *names) {
    Py_ssize_t count = PyTuple_Size(names);
    rdk_topic **topics = calloc((size_t)count + 1, sizeof *topics);
    if (!topics) return (rdk_topic **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), &size);
        if (name && strlen(name) != (size_t)size) /* it would be another topic's */
            PyErr_SetString(PyExc_ValueError, "embedded null character");
        else if (name)
            topics[i] = w->rdk->topic_new(w->handle, name, NULL);
    }
    if (!PyErr_Occurred()) return topics;
    drop_topics(w, topics, count);
    return NULL;
}

static PyObject *send_rows(ProducerObject *self, writer *w, const outgoing *rows,
                           PyObject *names, int64_t at, int wait_ms) {
    rdk_topic **topics = topics_of(w, names);
    if (!topics) return NULL;
    Py_ssize_t count = PyTuple_Size(names);
    int code;
    self->is_busy = 1;
    Py_BEGIN_ALLOW_THREADS code = writer_send(w, rows, topics, count, &at, wait_ms);
    Py_END_ALLOW_THREADS drop_topics(w, topics, count);
    return Py_BuildValue("(Li)", (long long)at, code);
}

/* Parse `args`: schema, array, topics, and what else `format` names. */
static int open_rows(PyObject *args, const char *format, outgoing *rows,
                     PyObject **names, long long *start, int *wait_ms) {
    PyObject *schema_capsule, *array_capsule;
    if (!PyArg_ParseTuple(args, format, &schema_capsule, &array_capsule, &PyTuple_Type,
                          names, start, wait_ms))
        return -1;
    const struct ArrowSchema *schema =
        PyCapsule_GetPointer(schema_capsule, "arrow_schema");
    const struct ArrowArray *array =
        schema ? PyCapsule_GetPointer(array_capsule, "arrow_array") : NULL;
    if (!array) return -1;
    const char *wrong = outgoing_open(rows, schema, array);
    if (!wrong && !PyTuple_Size(*names)) wrong = "topic";
    if (wrong) PyErr_Format(PyExc_ValueError, "'%s' cannot be written", wrong);
    return wrong ? -1 : 0;
}

static PyObject *Producer_send(ProducerObject *self, PyObject *args) {
    PyObject *names;
    long long start;
    int wait_ms;
    outgoing rows;
    if (open_rows(args, "OOO!Li:send", &rows, &names, &start, &wait_ms)) return NULL;
    writer *w = enter(self);
    if (!w) return NULL;
    PyObject *result = send_rows(self, w, &rows, names, start, wait_ms);
    leave(self);
    return result;
}

/* Headers of a sequence of pairs; NULL for None, or with an exception. */
static rdk_headers *headers_of(writer *w, PyObject *pairs) {
    if (pairs == Py_None) return NULL;
    Py_ssize_t count = PySequence_Size(pairs);
    rdk_headers *headers = count > 0 ? w->rdk->headers_new((size_t)count) : NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PySequence_GetItem(pairs, i);
        const char *key, *value;
        Py_ssize_t key_size, value_size;
        if (pair && PyArg_ParseTuple(pair, "s#z#", &key, &key_size, &value, &value_size))
            w->rdk->header_add(headers, key, key_size, value, value_size);
        Py_XDECREF(pair);
        if (!PyErr_Occurred()) continue;
        w->rdk->headers_destroy(headers);
        return NULL;
    }
    return headers;
}

static PyObject *Producer_produce(ProducerObject *self, PyObject *args) {
    PyObject *name, *pairs;
    const char *key, *value;
    Py_ssize_t key_size, value_size;
    int partition, code = 0;
    long long timestamp_ms;
    if (!PyArg_ParseTuple(args, "O!z#z#OiL:produce", &PyTuple_Type, &name, &key,
                          &key_size, &value, &value_size, &pairs, &partition,
                          &timestamp_ms))
        return NULL;
    writer *w = enter(self);
    rdk_topic **topics = w ? topics_of(w, name) : NULL;
    if (topics) {
        rdk_headers *headers = headers_of(w, pairs);
        if (!PyErr_Occurred())
            code = writer_produce(w, topics[0], partition,
                                  (out_bytes){key, (size_t)key_size},
                                  (out_bytes){value, (size_t)value_size}, timestamp_ms,
                                  headers);
        if (headers && code) w->rdk->headers_destroy(headers);
        drop_topics(w, topics, 1);
    }
    if (w) leave(self);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(code);
}

/* --- waiting ---------------------------------------------------------------------- */

/* Call a function of librdkafka that takes a number, without the lock. */
static PyObject *call(ProducerObject *self, PyObject *number,
                      int (*function)(rdk_client *, int)) {
    int given = (int)PyLong_AsLong(number), result;
    writer *w = PyErr_Occurred() ? NULL : enter(self);
    if (!w) return NULL;
    Py_BEGIN_ALLOW_THREADS result = function(w->handle, given);
    Py_END_ALLOW_THREADS leave(self);
    return PyLong_FromLong(result);
}

static PyObject *Producer_poll(ProducerObject *self, PyObject *timeout_ms) {
    return call(self, timeout_ms, self->writer->rdk->poll);
}

static PyObject *Producer_flush(ProducerObject *self, PyObject *timeout_ms) {
    return call(self, timeout_ms, self->writer->rdk->flush);
}

static PyObject *Producer_purge(ProducerObject *self, PyObject *unused) {
    (void)unused;
    PyObject *all = PyLong_FromLong(RDK_PURGE_ALL);
    PyObject *result = all ? call(self, all, self->writer->rdk->purge) : NULL;
    Py_XDECREF(all);
    return result;
}

static PyObject *Producer_connect(ProducerObject *self, PyObject *args) {
    PyObject *name;
    int timeout_ms, code;
    const rdk_metadata *found = NULL;
    if (!PyArg_ParseTuple(args, "O!i:connect", &PyTuple_Type, &name, &timeout_ms))
        return NULL;
    writer *w = enter(self);
    rdk_topic **topics = w ? topics_of(w, name) : NULL;
    if (topics && topics[0]) {
        Py_BEGIN_ALLOW_THREADS code =
            w->rdk->metadata(w->handle, 0, topics[0], &found, timeout_ms);
        if (!code) w->rdk->metadata_destroy(found);
        Py_END_ALLOW_THREADS
    }
    if (topics) drop_topics(w, topics, 1);
    if (w) leave(self);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static Py_ssize_t Producer_length(ProducerObject *self) {
    return self->writer->rdk->outq_len(self->writer->handle);
}

/* --- transactions ----------------------------------------------------------------- */

/* None, or what an error says: code, text, is it fatal, may one try again, must the
 * transaction be aborted. */
static PyObject *answer(ProducerObject *self, rdk_error *error) {
    const rdk_api *rdk = self->writer->rdk;
    leave(self);
    if (!error) Py_RETURN_NONE;
    PyObject *told = Py_BuildValue("(iNiii)", rdk->error_code(error),
                                   text_of(rdk->error_string(error)),
                                   rdk->error_is_fatal(error),
                                   rdk->error_is_retriable(error),
                                   rdk->error_txn_requires_abort(error));
    rdk->error_destroy(error);
    return told;
}

static PyObject *ask(ProducerObject *self, PyObject *number,
                     rdk_error *(*function)(rdk_client *, int)) {
    int timeout_ms = (int)PyLong_AsLong(number);
    writer *w = PyErr_Occurred() ? NULL : enter(self);
    rdk_error *error;
    if (!w) return NULL;
    Py_BEGIN_ALLOW_THREADS error = function(w->handle, timeout_ms);
    Py_END_ALLOW_THREADS return answer(self, error);
}

static PyObject *Producer_init(ProducerObject *self, PyObject *timeout_ms) {
    return ask(self, timeout_ms, self->writer->rdk->init_transactions);
}

static PyObject *Producer_commit(ProducerObject *self, PyObject *timeout_ms) {
    return ask(self, timeout_ms, self->writer->rdk->commit_transaction);
}

static PyObject *Producer_abort(ProducerObject *self, PyObject *timeout_ms) {
    return ask(self, timeout_ms, self->writer->rdk->abort_transaction);
}

static PyObject *Producer_begin(ProducerObject *self, PyObject *unused) {
    (void)unused;
    writer *w = enter(self);
    return w ? answer(self, w->rdk->begin_transaction(w->handle)) : NULL;
}

static PyObject *Producer_send_offset(ProducerObject *self, PyObject *args) {
    const char *name, *group, *metadata;
    int partition, timeout_ms;
    long long offset;
    if (!PyArg_ParseTuple(args, "ssiLzi:send_offset", &group, &name, &partition, &offset,
                          &metadata, &timeout_ms))
        return NULL;
    writer *w = enter(self);
    if (!w) return NULL;
    rdk_error *error;
    Py_BEGIN_ALLOW_THREADS error =
        writer_send_offset(w, group, name, partition, offset, metadata, timeout_ms);
    Py_END_ALLOW_THREADS
    return answer(self, error);
}

/* --- check sums ------------------------------------------------------------------- */

/* Names as UTF-8, which the tuple keeps alive. */
static out_bytes *borrow_names(PyObject *names) {
    Py_ssize_t count = PyTuple_Size(names);
    out_bytes *found = calloc((size_t)count + 1, sizeof *found);
    if (!found) return (out_bytes *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        Py_ssize_t size = 0;
        found[i].data = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), &size);
        found[i].size = (size_t)size;
    }
    if (!PyErr_Occurred()) return found;
    free(found);
    return NULL;
}

PyObject *sum_rows(PyObject *module, PyObject *args) {
    PyObject *names;
    outgoing rows;
    (void)module;
    if (open_rows(args, "OOO!:check_sums", &rows, &names, NULL, NULL)) return NULL;
    out_bytes *topics = borrow_names(names);
    if (!topics) return NULL;
    uint64_t sum;
    Py_BEGIN_ALLOW_THREADS sum = check_sums(&rows, topics);
    Py_END_ALLOW_THREADS free(topics);
    return PyLong_FromUnsignedLongLong(sum);
}

/* --- news ------------------------------------------------------------------------- */

static PyObject *report_of(const report *one) {
    return Py_BuildValue("(iiNN)", one->is_line, one->code, text_of(one->facility),
                         text_of(one->text));
}

static PyObject *headers_list(const rdk_api *rdk, const rdk_headers *headers) {
    const char *key;
    const void *value;
    size_t size;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && headers; i++) {
        if (rdk->header_get_all(headers, i, &key, &value, &size)) break;
        PyObject *pair = Py_BuildValue("(Ny#)", text_of(key), value, (Py_ssize_t)size);
        if (!pair || PyList_Append(list, pair)) Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *told_of(const rdk_api *rdk, const told_record *told) {
    return Py_BuildValue("(iNNiLy#y#nN)", told->code, text_of(told->text),
                         text_of(told->topic), (int)told->partition,
                         (long long)told->timestamp_ms, told->key.data,
                         (Py_ssize_t)told->key.size, told->value.data,
                         (Py_ssize_t)told->value.size,
                         (Py_ssize_t)(told->key.size + told->value.size),
                         headers_list(rdk, told->headers));
}

/* Append and drop the reference; -1 with an exception. */
static int append(PyObject *list, PyObject *item) {
    int result = item ? PyList_Append(list, item) : -1;
    Py_XDECREF(item);
    return result;
}

static int fill_news(const writer *w, PyObject *reports, PyObject *noted,
                     PyObject *worst) {
    for (const report *one = w->reports; one; one = one->next)
        if (append(reports, report_of(one))) return -1;
    for (const told_record *one = w->noted; one; one = one->next)
        if (append(noted, told_of(w->rdk, one))) return -1;
    return w->worst ? append(worst, told_of(w->rdk, w->worst)) : 0;
}

static PyObject *news_of(writer *w) {
    if (!writer_has_news(w)) {
        writer_forget(w);
        Py_RETURN_NONE;
    }
    if (w->has_no_memory) return PyErr_NoMemory();
    PyObject *reports = PyList_New(0), *noted = PyList_New(0), *worst = PyList_New(0);
    PyObject *news = NULL;
    if (reports && noted && worst && !fill_news(w, reports, noted, worst)) {
        news = PyTuple_Pack(3, reports, noted, worst);
        if (news) writer_forget(w);
    }
    Py_XDECREF(reports);
    Py_XDECREF(noted);
    Py_XDECREF(worst);
    return news;
}

static PyObject *Producer_news(ProducerObject *self, PyObject *unused) {
    (void)unused;
    writer *w = enter(self);
    if (!w) return NULL;
    PyObject *news = news_of(w);
    leave(self);
    return news;
}

static PyMethodDef Producer_methods[] = {
    {"connect", (PyCFunction)Producer_connect, METH_VARARGS,
     "connect((topic,), timeout_ms): ask for the topic."},
    {"send", (PyCFunction)Producer_send, METH_VARARGS,
     "send(schema, array, topics, start, wait_ms): next row; the code that refuses it."},
    {"produce", (PyCFunction)Producer_produce, METH_VARARGS,
     "produce((topic,), key, value, headers, partition, timestamp_ms): a code or 0."},
    {"poll", (PyCFunction)Producer_poll, METH_O, "poll(timeout_ms): events served."},
    {"flush", (PyCFunction)Producer_flush, METH_O, "flush(timeout_ms): a code or 0."},
    {"purge", (PyCFunction)Producer_purge, METH_NOARGS, "Drop what is on its way."},
    {"init_transactions", (PyCFunction)Producer_init, METH_O,
     "init_transactions(timeout_ms): None or an error."},
    {"begin_transaction", (PyCFunction)Producer_begin, METH_NOARGS, "None or an error."},
    {"commit_transaction", (PyCFunction)Producer_commit, METH_O,
     "commit_transaction(timeout_ms): None or an error."},
    {"abort_transaction", (PyCFunction)Producer_abort, METH_O,
     "abort_transaction(timeout_ms): None or an error."},
    {"send_offset", (PyCFunction)Producer_send_offset, METH_VARARGS,
     "send_offset(group, topic, partition, offset, metadata, timeout_ms): as above."},
    {"news", (PyCFunction)Producer_news, METH_NOARGS,
     "Reports, what was noted and the worst failure; None: nothing. Told once."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Producer_slots[] = {
    {Py_tp_methods, Producer_methods},
    {Py_tp_doc, "A Kafka producer; its length is the number of records on their way."},
    {Py_tp_new, Producer_new},
    {Py_tp_dealloc, Producer_dealloc},
    {Py_sq_length, Producer_length},
    {0, NULL},
};

PyType_Spec producer_spec = {
    .name = "kafka_tx.native._reader.Producer",
    .basicsize = sizeof(ProducerObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = Producer_slots,
};
