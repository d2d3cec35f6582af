/* describe_topics() of the Python type Client. */
#include <stdlib.h>

#include "module.h"
#include "topic_id.h"

/* A new reference to the broker's number; the broker is noted by it. -1: no leader. */
static PyObject *note_broker(const rdk_api *rdk, const rdk_node *node,
                             PyObject *brokers) {
    const char *host = node ? rdk->Node_host(node) : NULL;
    int id = host && *host ? rdk->Node_id(node) : -1;
    PyObject *number = PyLong_FromLong(id < 0 ? -1 : id);
    if (!number || id < 0) return number;
    int is_known = PyDict_Contains(brokers, number);
    PyObject *address =
        is_known ? NULL : Py_BuildValue("(si)", host, (int)rdk->Node_port(node));
    if (!is_known && (!address || PyDict_SetItem(brokers, number, address)))
        is_known = -1;
    Py_XDECREF(address);
    if (is_known >= 0) return number;
    Py_DECREF(number);
    return NULL;
}

/* Numbers of the partitions and of their leaders: packed, in the order of the answer. */
static PyObject *leaders_of(const rdk_api *rdk, const rdk_topic_description *topic,
                            PyObject *brokers) {
    size_t count = 0;
    const rdk_described **parts = rdk->TopicDescription_partitions(topic, &count);
    int32_t *numbers = calloc(2 * count + 1, sizeof *numbers);
    if (!numbers) return PyErr_NoMemory();
    const rdk_node *last = NULL;
    PyObject *leader = NULL, *packed = NULL;
    size_t i;
    for (i = 0; i < count; i++) {
        const rdk_node *node = rdk->TopicPartitionInfo_leader(parts[i]);
        if (!leader || node != last) {
            Py_XDECREF(leader);
            leader = note_broker(rdk, node, brokers);
            if (!leader) break;
        }
        last = node;
        numbers[2 * i] = rdk->TopicPartitionInfo_partition(parts[i]);
        numbers[2 * i + 1] = (int32_t)PyLong_AsLong(leader);
    }
    Py_XDECREF(leader);
    if (i == count)
        packed = PyBytes_FromStringAndSize(
            (const char *)numbers, (Py_ssize_t)(2 * count * sizeof *numbers));
    free(numbers);
    return packed;
}

/* Name, id or None, leaders, code and text of an error. */
static PyObject *topic_of(const rdk_api *rdk, const rdk_topic_description *topic,
                          PyObject *brokers) {
    int code;
    const char *id = told_topic_id(rdk, topic, &code);
    const char *name = rdk->TopicDescription_name(topic);
    PyObject *leaders = code ? PyBytes_FromStringAndSize("", 0)
                             : leaders_of(rdk, topic, brokers);
    if (code && leaders)
        return Py_BuildValue("(szNis)", name, id, leaders, code, rdk->err2str(code));
    return leaders ? Py_BuildValue("(szNis)", name, id, leaders, 0, "") : NULL;
}

static PyObject *topics_of(const rdk_api *rdk, rdk_event *event) {
    size_t count = 0;
    const rdk_result *result = rdk->event_DescribeTopics_result(event);
    const rdk_topic_description **told =
        result ? rdk->DescribeTopics_result_topics(result, &count) : NULL;
    PyObject *topics = PyList_New(0), *brokers = PyDict_New();
    int failed = !topics || !brokers;
    for (size_t i = 0; !failed && i < count; i++) {
        PyObject *topic = topic_of(rdk, told[i], brokers);
        failed = !topic || PyList_Append(topics, topic);
        Py_XDECREF(topic);
    }
    if (!failed) return Py_BuildValue("(NN)", topics, brokers);
    Py_XDECREF(topics);
    Py_XDECREF(brokers);
    return NULL;
}

/* The answer; NULL with an exception where there is none. */
static rdk_event *wait_for(PyTypeObject *type, client *c, rdk_queue *answers,
                           int64_t until_ms) {
    range_failure failure;
    rdk_event *event = NULL;
    while (!event) {
        Py_BEGIN_ALLOW_THREADS event = c->rdk->queue_poll(answers, SLICE_MS);
        if (!event) client_listen(c);
        Py_END_ALLOW_THREADS if (!event && refuse_to_wait(type, c, until_ms))
            return NULL;
    }
    int code = c->rdk->event_error(event);
    if (!code) return event;
    failure_kind kind =
        code == RDK_ERR_TIMED_OUT ? FAILURE_TIMED_OUT : kind_of_event(code);
    failure_set(&failure, kind ? kind : FAILURE_FETCH, code,
                c->rdk->event_error_string(event));
    c->rdk->event_destroy(event);
    raise_failure(type, &failure);
    return NULL;
}

PyObject *Client_describe_topics(ClientObject *self, PyObject *args) {
    PyObject *names, *found = NULL;
    int timeout_ms;
    if (!PyArg_ParseTuple(args, "O!i:describe_topics", &PyTuple_Type, &names,
                          &timeout_ms))
        return NULL;
    const char **strings = borrow_strings(names);
    if (!strings) return NULL;
    client *c = self->client;
    int64_t until_ms = now_ms() + timeout_ms + GRACE_MS;
    rdk_queue *answers = c->rdk->queue_new(c->handle);
    ask_for_topics(c, strings, (size_t)PyTuple_Size(names), timeout_ms, answers);
    rdk_event *event = wait_for(Py_TYPE((PyObject *)self), c, answers, until_ms);
    if (event) {
        watch_answered(&c->watch);
        found = topics_of(c->rdk, event);
        c->rdk->event_destroy(event);
    }
    c->rdk->queue_destroy(answers);
    free(strings);
    return found;
}
