/* The Python module kafka_tx.native._reader: bind(), Client, Range and Producer.
 *
 * Built against CPython's stable ABI, so that one build serves every later version.
 */
#include "module.h"

#include <string.h>

static rdk_api librdkafka; /* one per process, like the library itself */
static int is_bound;

static const char *const KIND_NAMES[] = {
    [FAILURE_NONE] = "none",           [FAILURE_SETTINGS] = "settings",
    [FAILURE_RECORD] = "record",       [FAILURE_OUT_OF_RANGE] = "out of range",
    [FAILURE_DENIED] = "denied",       [FAILURE_UNKNOWN_TOPIC] = "unknown topic",
    [FAILURE_TIMED_OUT] = "timed out", [FAILURE_FETCH] = "fetch",
    [FAILURE_STALE] = "stale",         [FAILURE_REPLACED] = "replaced",
};

PyObject *raise_failure(PyTypeObject *type, const range_failure *failure) {
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

const rdk_api *bound_librdkafka(void) {
    if (is_bound) return &librdkafka;
    PyErr_SetString(PyExc_RuntimeError, "bind() has to succeed first");
    return NULL;
}

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

/* Adds the type to the module and keeps another reference in `kept`. */
static int add_type(PyObject *module, PyType_Spec *spec, PyObject **kept) {
    *kept = PyType_FromModuleAndSpec(module, spec, NULL);
    return *kept ? PyModule_AddType(module, (PyTypeObject *)*kept) : -1;
}

/* Raise it with what Python calls: an extension that was not built anew is refused. */
enum { REVISION = 6, WRITER_REVISION = 2, DECODER_REVISION = 2 };

static int execute(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    state->read_error = PyErr_NewExceptionWithDoc(
        "kafka_tx.native._reader.ReadError",
        "args: kind, code, code name, position, log start, log end, text", NULL, NULL);
    if (!state->read_error) return -1;
    if (PyModule_AddObjectRef(module, "ReadError", state->read_error)) return -1;
    if (PyModule_AddIntConstant(module, "REVISION", REVISION)) return -1;
    if (PyModule_AddIntConstant(module, "WRITER_REVISION", WRITER_REVISION)) return -1;
    if (PyModule_AddIntConstant(module, "DECODER_REVISION", DECODER_REVISION)) return -1;
    if (add_type(module, &client_spec, &state->client_type)) return -1;
    PyObject *range_type, *producer_type = NULL;
    int result = add_type(module, &range_spec, &range_type);
    if (!result) result = add_type(module, &producer_spec, &producer_type);
    Py_XDECREF(range_type);
    Py_XDECREF(producer_type);
    return result;
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->read_error);
    Py_VISIT(state->client_type);
    return 0;
}

static int clear(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->read_error);
    Py_CLEAR(state->client_type);
    return 0;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_O,
     "Find librdkafka in or under the shared object at this path; return its version."},
    {"check_sums", sum_rows, METH_VARARGS,
     "check_sums(schema, array, topics): of rows to write; see sink_parts.py."},
    {"decode_avro", decode_avro, METH_VARARGS,
     "decode_avro(schema, array, begins, chosen, programs, layout): see decoders.py."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_reader", .m_size = sizeof(module_state),
    .m_methods = methods,  .m_slots = slots,    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__reader(void) { return PyModuleDef_Init(&definition); }
