/* list_offsets() of the Python type Client. */
#include <stdlib.h>
#include <time.h>

#include "module.h"
#include "offsets.h"

enum { SLICE_MS = 50, GRACE_MS = 1000 };

typedef struct {
    asked_offset *asked;
    size_t count;
    offset_request *requests;
    size_t request_count;
    size_t *ends; /* of each question, in `asked` */
    Py_ssize_t questions;
} asking;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void release(asking *a) {
    for (size_t i = 0; i < a->request_count; i++) offsets_close(&a->requests[i]);
    for (size_t i = 0; i < a->count; i++) Py_DECREF((PyObject *)a->asked[i].owner);
    free(a->asked);
    free(a->requests);
    free(a->ends);
}

/* Take one entry of a question: (topic, partition) and what is wanted of it. */
static int read_entry(asking *a, PyObject *key, PyObject *wanted) {
    asked_offset one = {.owner = key};
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
    range_failure failure;
    for (size_t i = 0; i < a->request_count;) {
        int is_there;
        Py_BEGIN_ALLOW_THREADS is_there = offsets_wait(&a->requests[i], SLICE_MS);
        if (!is_there) client_listen(c);
        Py_END_ALLOW_THREADS if (is_there) {
            i++;
            continue;
        }
        if (PyErr_CheckSignals()) return -1;
        failure_kind kind = FAILURE_NONE;
        if (c->watch.denied_code)
            kind = FAILURE_DENIED;
        else if (now_ms() > until_ms)
            kind = FAILURE_TIMED_OUT;
        if (kind == FAILURE_NONE) continue;
        failure_set(&failure, kind, c->watch.denied_code, watch_reason(&c->watch));
        raise_failure(type, &failure);
        return -1;
    }
    return 0;
}

static int put(PyObject *answers, const asked_offset *one, PyObject *answer) {
    int result = answer ? PyDict_SetItem(answers, (PyObject *)one->owner, answer) : -1;
    Py_XDECREF(answer);
    return result;
}

static int put_answer(PyObject *told, PyObject *failed, const offset_request *request,
                      const asked_offset *one) {
    if (request->err)
        return put(failed, one, Py_BuildValue("(is)", request->err, request->text));
    const char *text = request->client->rdk->err2str(one->err);
    if (one->err) return put(failed, one, Py_BuildValue("(is)", one->err, text));
    if (one->offset < -1) /* librdkafka leaves it so, without an error */
        return put(failed, one,
                   Py_BuildValue("(is)", RDK_ERR_TIMED_OUT,
                                 "its leader did not answer in time"));
    if (one->leader_epoch < 0)
        return put(told, one, Py_BuildValue("(LO)", (long long)one->offset, Py_None));
    return put(told, one,
               Py_BuildValue("(Li)", (long long)one->offset, one->leader_epoch));
}

/* Offsets and errors of one question, whose requests begin at `*request`. */
static PyObject *answer_of(const asking *a, size_t start, size_t end, size_t *request) {
    PyObject *told = PyDict_New(), *failed = PyDict_New();
    int result = told && failed ? 0 : -1;
    while (!result && start < end) {
        const offset_request *of = &a->requests[(*request)++];
        for (size_t i = 0; !result && i < of->count; i++)
            result = put_answer(told, failed, of, &of->asked[i]);
        start += of->count;
    }
    if (!result && PyDict_Size(told)) watch_answered(&a->requests->client->watch);
    if (!result) return Py_BuildValue("(NN)", told, failed);
    Py_XDECREF(told);
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
