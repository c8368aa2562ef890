/* SPDX-License-Identifier: Apache-2.0 */
/* The module ckpress._core: types, functions, constants. */
#include "_core/core.h"

ckpy_types *
ckpy_types_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

static int
add_type(PyObject *m, PyTypeObject **slot, PyType_Spec *spec)
{
    *slot = (PyTypeObject *)PyType_FromModuleAndSpec(m, spec, NULL);
    return *slot == NULL ? -1 : PyModule_AddType(m, *slot);
}

/* Numbers that python/ckpress uses by name, so that no value is written twice. */
static int
add_constants(PyObject *m)
{
    static const struct { const char *name; long value; } table[] = {
        {"NONE", CKP_TREE_NONE}, {"FALSE", CKP_TREE_FALSE}, {"TRUE", CKP_TREE_TRUE}, {"INT", CKP_TREE_INT}, {"BIGINT", CKP_TREE_BIGINT},
        {"FLOAT", CKP_TREE_FLOAT}, {"COMPLEX", CKP_TREE_COMPLEX}, {"STR", CKP_TREE_STR}, {"BYTES", CKP_TREE_BYTES},
        {"LIST", CKP_TREE_LIST}, {"TUPLE", CKP_TREE_TUPLE}, {"DICT", CKP_TREE_DICT}, {"ORDERED_DICT", CKP_TREE_ORDERED_DICT},
        {"SET", CKP_TREE_SET}, {"FROZENSET", CKP_TREE_FROZENSET}, {"TORCH_SIZE", CKP_TREE_TORCH_SIZE}, {"DTYPE", CKP_TREE_DTYPE},
        {"DEVICE", CKP_TREE_DEVICE}, {"NUMPY_SCALAR", CKP_TREE_NUMPY_SCALAR}, {"TENSOR", CKP_TREE_TENSOR}, {"NAMED", CKP_TREE_NAMED},
        {"BYTEARRAY", CKP_TREE_BYTEARRAY},
        {"AS_TORCH", CKP_AS_TORCH}, {"AS_TORCH_PARAMETER", CKP_AS_TORCH_PARAMETER}, {"AS_NUMPY", CKP_AS_NUMPY},
        {"AS_TORCH_REQUIRES_GRAD", CKP_AS_TORCH_REQUIRES_GRAD}, {"AS_PYTHON_BYTES", CKP_AS_PYTHON_BYTES},
        {"AS_PYTHON_INTS", CKP_AS_PYTHON_INTS}, {"AS_SPARSE_PART", CKP_AS_SPARSE_PART},
        {"OTHER", CKP_ROLE_OTHER}, {"WEIGHT", CKP_ROLE_WEIGHT}, {"MASTER", CKP_ROLE_MASTER}, {"COPY", CKP_ROLE_COPY}, {"M", CKP_ROLE_M}, {"AVERAGE", CKP_ROLE_AVERAGE},
        {"V", CKP_ROLE_V}, {"MOMENTUM", CKP_ROLE_MOMENTUM},
        {"PROFILE_LOSSLESS", CKP_PROFILE_LOSSLESS}, {"PROFILE_RESUME", CKP_PROFILE_RESUME}, {"PROFILE_SMALL", CKP_PROFILE_SMALL},
        {"PROFILE_WEIGHTS", CKP_PROFILE_WEIGHTS}, {"STATES_PROFILE", CKP_STATES_PROFILE}, {"STATES_CLUSTER", CKP_STATES_CLUSTER}, {"STATES_CODEBOOK", CKP_STATES_CODEBOOK}, {"VERIFY_STRUCTURE", CKP_VERIFY_STRUCTURE}, {"VERIFY_DATA", CKP_VERIFY_DATA},
        {"VERIFY_DECODE", CKP_VERIFY_DECODE},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (PyModule_AddIntConstant(m, table[i].name, table[i].value) < 0)
            return -1;
    return PyModule_AddStringConstant(m, "version", ckp_version());
}

static int
module_exec(PyObject *m)
{
    ckpy_types *types = PyModule_GetState(m);
    if (add_type(m, &types->state, &ckpy_state_spec) < 0 || add_type(m, &types->run, &ckpy_run_spec) < 0 ||
        add_type(m, &types->checkpoint, &ckpy_checkpoint_spec) < 0 || add_type(m, &types->search, &ckpy_search_spec) < 0 ||
        add_type(m, &types->bytes, &ckpy_bytes_spec) < 0 || add_type(m, &types->optim, &ckpy_optim_spec) < 0 ||
        add_type(m, &types->policy, &ckpy_policy_spec) < 0)
        return -1;
    return PyModule_AddFunctions(m, ckpy_upkeep_functions) < 0 ? -1 : add_constants(m);
}

static int
module_traverse(PyObject *m, visitproc visit, void *arg)
{
    ckpy_types *types = PyModule_GetState(m);
    if (types != NULL) {
        Py_VISIT(types->state);
        Py_VISIT(types->run);
        Py_VISIT(types->checkpoint);
        Py_VISIT(types->search);
        Py_VISIT(types->bytes);
        Py_VISIT(types->optim);
        Py_VISIT(types->policy);
    }
    return 0;
}

static int
module_clear(PyObject *m)
{
    ckpy_types *types = PyModule_GetState(m);
    if (types != NULL) {
        Py_CLEAR(types->state);
        Py_CLEAR(types->run);
        Py_CLEAR(types->checkpoint);
        Py_CLEAR(types->search);
        Py_CLEAR(types->bytes);
        Py_CLEAR(types->optim);
        Py_CLEAR(types->policy);
    }
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},   /* through an integer: ISO C has no cast from function to object pointer */
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpress._core",
    .m_doc = "The C library as Python objects. Private: use ckpress.",
    .m_size = sizeof(ckpy_types),
    .m_methods = ckpy_file_functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&module_def);
}
