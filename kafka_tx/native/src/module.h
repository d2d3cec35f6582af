/* What the files share that know Python. */
#ifndef KAFKA_TX_MODULE_H
#define KAFKA_TX_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "client.h"

typedef struct {
    PyObject *read_error;
    PyObject *client_type;
} module_state;

typedef struct {
    PyObject_HEAD client *client;
    int is_reading; /* a range of it is open */
} ClientObject;

extern PyType_Spec client_spec;
extern PyType_Spec range_spec;
extern PyType_Spec producer_spec;

/* librdkafka once bind() has found it, and an exception and NULL before. */
const rdk_api *bound_librdkafka(void);

/* check_sums(schema, array, topics) of the module. */
PyObject *sum_rows(PyObject *module, PyObject *args);

/* decode_avro(schema, array, begins, chosen, programs, layout) of the module. */
PyObject *decode_avro(PyObject *module, PyObject *args);

/* list_offsets(questions, is_committed, timeout_ms, largest) of Client. */
PyObject *Client_list_offsets(ClientObject *, PyObject *args);

/* describe_topics(names, timeout_ms) of Client. */
PyObject *Client_describe_topics(ClientObject *, PyObject *args);

/* While a method waits for answers, it looks after each slice whether it should. */
enum { SLICE_MS = 50, GRACE_MS = 1000 };

/* Now, by a clock that nobody sets. */
int64_t now_ms(void);

/* -1 with an exception where there is a signal, the client was refused, or it is later
 * than that. */
int refuse_to_wait(PyTypeObject *, client *, int64_t until_ms);

/* A new array of the strings' UTF-8, NULL at the end; the tuple keeps them alive. */
const char **borrow_strings(PyObject *tuple);

/* The same, of names with values. */
const char **borrow_pairs(PyObject *tuple);

/* Raise what made a method of this type fail; NULL. */
PyObject *raise_failure(PyTypeObject *, const range_failure *);

#endif
