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

/* librdkafka once bind() has found it, and an exception and NULL before. */
const rdk_api *bound_librdkafka(void);

/* Raise what made a method of this type fail; NULL. */
PyObject *raise_failure(PyTypeObject *, const range_failure *);

#endif
