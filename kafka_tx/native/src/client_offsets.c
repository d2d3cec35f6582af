/* list_offsets() of the Python type Client. */
#include <stdlib.h>
#include <string.h>

#include "module.h"
#include "offsets.h"

typedef struct {
    asked_offset *asked;
    size_t count;
    offset_request *requests;
    size_t request_count;
    size_t *ends; /* of each question, in `asked` */
    Py_ssize_t questions;
} asking;

static void release(asking *a) {
    for (size_t i = 0; i < a->request_count; i++) offsets_close(&a->requests[i]);
    for (size_t i = 0; i < a->count; i++) Py_DECREF((PyObject *)a->asked[i].owner);
    free(a->asked);
    free(a->requests);
    free(a->ends);
}

/* Take one entry of a question: (topic, partition) and what is wanted of it. */
static int read_entry(asking *a, PyObject *key, PyObject *wanted) {
    asked_offset one = {.owner = key, .place = a->count};
    if (!PyTuple_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "a partition is a topic and a number");
        return -1;
    }
    if (!PyArg_ParseTuple(key, "si", &one.topic, &one.partition)) return -1;
    one.wanted = PyLong_AsLongLong(wanted);
    if (one.wanted == -1 && PyErr_Occurred()) return -1;
    Py_INCREF(key);
    a->asked[a->count++] = one;
    return 0;
}

static int read_questions(asking *a, PyObject *questions, size_t largest) {
    a->questions = PyList_Size(questions);
    size_t entries = 0, requests = 0;
    for (Py_ssize_t i = 0; i < a->questions; i++) {
        PyObject *question = PyList_GetItem(questions, i);
        if (!PyDict_Check(question)) {
            PyErr_SetString(PyExc_TypeError, "a question is a dict");
            return -1;
        }
        Py_ssize_t size = PyDict_Size(question);
        entries += (size_t)size;
        requests += ((size_t)size + largest - 1) / largest;
    }
    a->asked = calloc(entries + 1, sizeof *a->asked);
    a->requests = calloc(requests + 1, sizeof *a->requests);
    a->ends = calloc((size_t)a->questions + 1, sizeof *a->ends);
    if (!a->asked || !a->requests || !a->ends) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < a->questions; i++) {
        PyObject *question = PyList_GetItem(questions, i), *key, *wanted;
        Py_ssize_t at = 0;
        while (PyDict_Next(question, &at, &key, &wanted))
            if (read_entry(a, key, wanted)) return -1;
        a->ends[i] = a->count;
    }
    return 0;
}

static void send_all(asking *a, client *c, size_t largest, int is_committed,
                     int timeout_ms) {
    size_t start = 0;
    for (Py_ssize_t i = 0; i < a->questions; i++)
        while (start < a->ends[i]) {
            size_t rest = a->ends[i] - start, count = rest < largest ? rest : largest;
            offsets_ask(&a->requests[a->request_count++], c, &a->asked[start], count,
                        is_committed, timeout_ms);
            start += count;
        }
}

/* 0 once all are answered; -1 with an exception where one is not, or is refused. */
static int wait_for_all(asking *a, PyTypeObject *type, client *c, int64_t until_ms) {
    for (size_t i = 0; i < a->request_count;) {
        int is_there;
        Py_BEGIN_ALLOW_THREADS is_there = offsets_wait(&a->requests[i], SLICE_MS);
        if (!is_there) client_listen(c);
        Py_END_ALLOW_THREADS if (is_there) i++;
        else if (refuse_to_wait(type, c, until_ms)) return -1;
    }
    return 0;
}

/* What librdkafka says of one partition that has no offset; NULL: it has one. */
static const char *why_failed(const offset_request *request, const asked_offset *one,
                              int *code) {
    if (request->err) return *code = request->err, request->text;
    if (one->err) return *code = one->err, request->client->rdk->err2str(one->err);
    if (one->offset >= -1) return NULL;
    *code = RDK_ERR_TIMED_OUT; /* librdkafka leaves it so, without an error */
    return "its leader did not answer in time";
}

static int put_failure(PyObject *failed, const asked_offset *one, int code,
                       const char *text) {
    PyObject *answer = Py_BuildValue("(is)", code, text);
    int result = answer ? PyDict_SetItem(failed, (PyObject *)one->owner, answer) : -1;
    Py_XDECREF(answer);
    return result;
}

/* Offsets and epochs of one question in its order, and what failed; its requests begin
 * at `*request`. */
static PyObject *answer_of(const asking *a, size_t start, size_t end, size_t *request) {
    Py_ssize_t size = (Py_ssize_t)(end - start);
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, size * (int)sizeof(int64_t));
    PyObject *epochs = PyBytes_FromStringAndSize(NULL, size * (int)sizeof(int32_t));
    PyObject *failed = PyDict_New();
    int result = offsets && epochs && failed ? 0 : -1, code;
    for (size_t at = start; !result && at < end;) {
        const offset_request *of = &a->requests[(*request)++];
        for (size_t i = 0; !result && i < of->count; i++) {
            const asked_offset *one = &of->asked[i];
            size_t place = one->place - start;
            memcpy(PyBytes_AsString(offsets) + place * sizeof one->offset, &one->offset,
                   sizeof one->offset);
            memcpy(PyBytes_AsString(epochs) + place * sizeof one->leader_epoch,
                   &one->leader_epoch, sizeof one->leader_epoch);
            const char *text = why_failed(of, one, &code);
            if (text) result = put_failure(failed, one, code, text);
        }
        at += of->count;
    }
    if (!result && PyDict_Size(failed) < size)
        watch_answered(&a->requests->client->watch);
    if (!result) return Py_BuildValue("(NNN)", offsets, epochs, failed);
    Py_XDECREF(offsets);
    Py_XDECREF(epochs);
    Py_XDECREF(failed);
    return NULL;
}

static PyObject *answers_of(const asking *a) {
    PyObject *answers = PyList_New(0);
    size_t start = 0, request = 0;
    for (Py_ssize_t i = 0; answers && i < a->questions; i++) {
        PyObject *answer = answer_of(a, start, a->ends[i], &request);
        if (!answer || PyList_Append(answers, answer)) Py_CLEAR(answers);
        Py_XDECREF(answer);
        start = a->ends[i];
    }
    return answers;
}

PyObject *Client_list_offsets(ClientObject *self, PyObject *args) {
    PyObject *questions, *answers = NULL;
    int is_committed, timeout_ms, largest;
    if (!PyArg_ParseTuple(args, "O!pii:list_offsets", &PyList_Type, &questions,
                          &is_committed, &timeout_ms, &largest))
        return NULL;
    if (largest < 1) {
        PyErr_SetString(PyExc_ValueError, "a request has at least one partition");
        return NULL;
    }
    asking a = {0};
    client *c = self->client;
    int64_t until_ms = now_ms() + timeout_ms + GRACE_MS;
    int result = read_questions(&a, questions, (size_t)largest);
    if (!result) {
        Py_BEGIN_ALLOW_THREADS send_all(&a, c, (size_t)largest, is_committed,
                                        timeout_ms);
        Py_END_ALLOW_THREADS result =
            wait_for_all(&a, Py_TYPE((PyObject *)self), c, until_ms);
    }
    if (!result) answers = answers_of(&a);
    release(&a);
    return answers;
}
