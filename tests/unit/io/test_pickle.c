/* SPDX-License-Identifier: Apache-2.0 */
/* The pickle machine: plain values of every protocol, and everything that a hostile pickle may try. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "harness/guard.h"
#include "io/torch/torch.h"
#include "state/state.h"

typedef struct made { ckpi_foreign f; ckp_status st; ckp_error err; } made;

/* Reads a pickle (flush against unmapped memory) into a state. */
static made
load(const void *p, size_t n)
{
    made m = {.st = CKP_OK};
    ckpi_pickle pk;
    ckpi_pv *root = NULL;
    uint8_t *edge = guard_copy(p, n);
    assert_int_equal(ckp_state_new(&m.f.state, NULL), CKP_OK);
    assert_int_equal(ckpi_pickle_init(&pk, &m.f.arena, edge, n, 1000, &m.err), CKP_OK);
    m.st = ckpi_pickle_load(&pk, &root);
    if (m.st == CKP_OK)
        m.st = ckpi_pt_emit(&m.f, &pk, root, &m.err);
    if (m.st == CKP_OK)
        m.st = ckpi_state_seal(m.f.state, &m.err);
    ckpi_pickle_free(&pk);
    guard_free(edge);
    return m;
}

static void
drop(made *m)
{
    ckp_state_free(m->f.state);
    ckpi_io_arena_free(&m->f.arena);
}

/* The tree as a line: i5 s"x" [2 ... and so on */
static void
show(const ckp_state *s, char *out, size_t size)
{
    ckp_tree_reader r;
    ckp_tree_node n;
    size_t at = 0;
    out[0] = 0;
    ckp_tree_reader_init(&r, s->tree.data, s->tree.len);
    while (at < size && ckp_tree_next(&r, &n, NULL) == CKP_OK) {
        const char *text = n.data != NULL ? n.data : "";
        switch (n.type) {
        case CKP_TREE_NONE: at += (size_t)snprintf(out + at, size - at, "N "); break;
        case CKP_TREE_FALSE: at += (size_t)snprintf(out + at, size - at, "F "); break;
        case CKP_TREE_TRUE: at += (size_t)snprintf(out + at, size - at, "T "); break;
        case CKP_TREE_INT: at += (size_t)snprintf(out + at, size - at, "%lld ", (long long)n.i); break;
        case CKP_TREE_FLOAT: at += (size_t)snprintf(out + at, size - at, "f%g ", n.re); break;
        case CKP_TREE_COMPLEX: at += (size_t)snprintf(out + at, size - at, "c%g,%g ", n.re, n.im); break;
        case CKP_TREE_BIGINT: at += (size_t)snprintf(out + at, size - at, "big%zu ", n.len); break;
        case CKP_TREE_STR: at += (size_t)snprintf(out + at, size - at, "'%.*s' ", (int)n.len, text); break;
        case CKP_TREE_BYTES: at += (size_t)snprintf(out + at, size - at, "b%zu ", n.len); break;
        case CKP_TREE_BYTEARRAY: at += (size_t)snprintf(out + at, size - at, "ba%zu ", n.len); break;
        case CKP_TREE_LIST: at += (size_t)snprintf(out + at, size - at, "[%llu ", (unsigned long long)n.count); break;
        case CKP_TREE_TUPLE: at += (size_t)snprintf(out + at, size - at, "(%llu ", (unsigned long long)n.count); break;
        case CKP_TREE_DICT: at += (size_t)snprintf(out + at, size - at, "{%llu ", (unsigned long long)n.count); break;
        case CKP_TREE_ORDERED_DICT: at += (size_t)snprintf(out + at, size - at, "od%llu ", (unsigned long long)n.count); break;
        case CKP_TREE_SET: at += (size_t)snprintf(out + at, size - at, "set%llu ", (unsigned long long)n.count); break;
        case CKP_TREE_FROZENSET: at += (size_t)snprintf(out + at, size - at, "fs%llu ", (unsigned long long)n.count); break;
        case CKP_TREE_TENSOR: at += (size_t)snprintf(out + at, size - at, "t%u ", n.tensor); break;
        default: at += (size_t)snprintf(out + at, size - at, "#%d:%.*s ", (int)n.type, (int)n.len, text); break;
        }
    }
}

typedef struct good { const char *pickle; size_t len; const char *tree; } good;
#define P(s) s, sizeof(s) - 1

static const good goods[] = {
    {P("N."), "N "},
    {P("I01\n."), "T "},
    {P("I00\n."), "F "},
    {P("I-17\n."), "-17 "},
    {P("L123456789012L\n."), "123456789012 "},
    {P("F1.5\n."), "f1.5 "},
    {P("Fnan\n."), "fnan "},
    {P("S'abc'\n."), "'abc' "},
    {P("Va\\u00e9b\n."), "'a\xc3\xa9" "b' "},
    {P("(lp0\nI1\naI2\na."), "[2 1 2 "},
    {P("(dp0\nVk\nI1\ns."), "{1 'k' 1 "},
    {P("(I1\nI2\nt."), "(2 1 2 "},
    {P("(I1\nI2\nl."), "[2 1 2 "},
    {P("(Vk\nI2\nd."), "{1 'k' 2 "},
    {P("\x80\x02K\x05."), "5 "},
    {P("\x80\x02M\x00\x01."), "256 "},
    {P("\x80\x02J\xff\xff\xff\xff."), "-1 "},
    {P("\x80\x02\x8a\x00."), "0 "},
    {P("\x80\x02\x8a\x01\xff."), "-1 "},
    {P("\x80\x02\x8a\x02\xff\x00."), "255 "},
    {P("\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), "-9223372036854775808 "},
    {P("\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."), "big9 "},
    {P("\x80\x02\x8a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff."), "-1 "},
    {P("\x80\x02\x8b\x01\x00\x00\x00\x07."), "7 "},
    {P("\x80\x02G?\xf8\x00\x00\x00\x00\x00\x00."), "f1.5 "},
    {P("\x80\x02U\x03" "abc."), "'abc' "},
    {P("\x80\x02U\x02\xff\xfe."), "b2 "},
    {P("\x80\x02T\x01\x00\x00\x00" "a."), "'a' "},
    {P("\x80\x02]q\x00(K\x01K\x02" "e."), "[2 1 2 "},
    {P("\x80\x02}q\x00(K\x01K\x02K\x03K\x04u."), "{2 1 2 3 4 "},
    {P("\x80\x02)."), "(0 "},
    {P("\x80\x02K\x01\x85."), "(1 1 "},
    {P("\x80\x02K\x01q\x05h\x05\x86."), "(2 1 1 "},
    {P("\x80\x02K\x01r\x05\x00\x00\x00j\x05\x00\x00\x00\x86."), "(2 1 1 "},
    {P("\x80\x02K\x01" "2\x86."), "(2 1 1 "},
    {P("\x80\x02K\x01K\x02" "0."), "1 "},
    {P("\x80\x02K\x01(K\x02K\x03" "1."), "1 "},
    {P("\x80\x03" "B\x02\x00\x00\x00xyC\x01z\x86."), "(2 b2 b1 "},
    {P("\x80\x04\x95\x04\x00\x00\x00\x00\x00\x00\x00\x8c\x01" "a\x94h\x00\x86."), "(2 'a' 'a' "},
    {P("\x80\x04\x8d\x01\x00\x00\x00\x00\x00\x00\x00" "a\x8e\x01\x00\x00\x00\x00\x00\x00\x00" "b\x86."), "(2 'a' b1 "},
    {P("\x80\x04\x8f\x94(K\x01K\x02\x90."), "set2 1 2 "},
    {P("\x80\x04(K\x01\x91."), "fs1 1 "},
    {P("\x80\x05\x96\x02\x00\x00\x00\x00\x00\x00\x00xy."), "ba2 "},
    {P("ccollections\nOrderedDict\n)RX\x01\x00\x00\x00kK\x01s."), "od1 'k' 1 "},
    {P("ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00kK\x01sb."), "#20:collections.OrderedDict (2 od0 {1 'k' 1 "},
    {P("ccollections\nOrderedDict\n]]K\x01" "aK\x02" "aa\x85R."), "od1 1 2 "},
    {P("c__builtin__\ncomplex\nG?\xf0\x00\x00\x00\x00\x00\x00G@\x00\x00\x00\x00\x00\x00\x00\x86R."), "c1,2 "},
    {P("c_codecs\nencode\nX\x03\x00\x00\x00" "a\xc3\xbfX\x06\x00\x00\x00latin1\x86R."), "b2 "},
    {P("cbuiltins\nbytes\n)R."), "b0 "},
    {P("ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R."), "#20:collections.defaultdict (2 'list' {0 "},
    {P("ctorch\nfloat32\n."), "#16:torch.float32 "},
    {P("ctorch\ndevice\nX\x04\x00\x00\x00" "cudaK\x01\x86R."), "#17:cuda:1 "},
    {P("ctorch\nSize\nK\x02K\x03\x86\x85R."), "#15: 2 3 "},
    {P("(cnumpy\ndtype\nX\x02\x00\x00\x00" "f4\x89\x88\x87R(K\x03X\x01\x00\x00\x00<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbt."), "(1 #16:numpy.float32 "},
    {P("(cnumpy\ndtype\nX\x02\x00\x00\x00" "f4\x89\x88\x87R(K\x03X\x01\x00\x00\x00>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbt."), "(1 #16:numpy.>f4 "},
    {P("cnumpy\nfloat32\n."), "#20:numpy.type 'numpy.float32' "},
};

static void
test_good(void **state)
{
    (void)state;
    char tree[512];
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        made m = load(goods[i].pickle, goods[i].len);
        if (m.st != CKP_OK)
            fail_msg("number %zu (%s): %s", i, goods[i].tree, m.err.text);
        show(m.f.state, tree, sizeof tree);
        if (strcmp(tree, goods[i].tree) != 0)
            fail_msg("number %zu gives %s, not %s", i, tree, goods[i].tree);
        drop(&m);
        /* Cut anywhere it is an error. */
        for (size_t n = 0; n < goods[i].len; n++) {
            m = load(goods[i].pickle, n);
            assert_int_equal(m.st, CKP_ETRUNCATED);
            drop(&m);
        }
    }
}

typedef struct bad { const char *pickle; size_t len; ckp_status st; const char *says; } bad;

static const bad bads[] = {
    {P("cposix\nsystem\n(S'id'\ntR."), CKP_EUNSAFE, "posix.system"},
    {P("cos\nsystem\n."), CKP_EUNSAFE, "os.system"},
    {P("c__builtin__\neval\n."), CKP_EUNSAFE, "__builtin__.eval"},
    {P("cbuiltins\ngetattr\n."), CKP_EUNSAFE, "builtins.getattr"},
    {P("cfunctools\npartial\n."), CKP_EUNSAFE, "functools.partial"},
    {P("ctorch.hub\nload\n."), CKP_EUNSAFE, "torch.hub.load"},
    {P("ctorch\nload\n."), CKP_EUNSAFE, "torch.load"},
    {P("ctorch._utils\n_rebuild_wrapper_subclass\n."), CKP_EUNSAFE, "_rebuild_wrapper_subclass"},
    {P("ctorch.float32\n__class__\n."), CKP_EUNSAFE, "torch.float32.__class__"},
    {P("c\n\n."), CKP_EUNSAFE, "asks for ."},
    {P("\x80\x04\x8c\x05posix\x8c\x06system\x93."), CKP_EUNSAFE, "posix.system"},
    {P("(ios\nsystem\n."), CKP_EUNSAFE, "instance"},
    {P("(cbuiltins\nint\no."), CKP_EUNSAFE, "instance"},
    {P("\x82\x01."), CKP_EUNSAFE, "extension"},
    {P("N)R."), CKP_EUNSAFE, "a call"},
    {P("cbuiltins\nint\n)R."), CKP_EUNSAFE, "mentioned"},
    {P("ctorch\nfloat32\n)R."), CKP_EUNSAFE, "mentioned"},
    {P("ccollections\ndefaultdict\nctorch._utils\n_rebuild_tensor_v2\n\x85R."), CKP_EUNSAFE, "factory"},
    {P("(X\x06\x00\x00\x00modulecbuiltins\nint\nNNNtQ."), CKP_EUNSAFE, "persistent"},
    {P("K\x05Q."), CKP_EUNSAFE, "persistent"},
    {P("Pabc\n."), CKP_EUNSUPPORTED, "persistent"},
    {P("ctorch._utils\n_rebuild_tensor_v2\n."), CKP_EUNSUPPORTED, "as a value"},
    {P("\x80\x09."), CKP_EVERSION, "protocol 9"},
    {P("\x80\x05\x97."), CKP_EUNSUPPORTED, "buffer"},
    {P("."), CKP_ECORRUPT, "0 values"},
    {P("NN."), CKP_ECORRUPT, "2 values"},
    {P("(N."), CKP_ECORRUPT, "1 values"},
    {P("\x85."), CKP_ECORRUPT, "not there"},
    {P("0."), CKP_ECORRUPT, "empty stack"},
    {P("1."), CKP_ECORRUPT, "mark"},
    {P("2."), CKP_ECORRUPT, "not there"},
    {P("q\x00."), CKP_ECORRUPT, "not there"},
    {P("h\x00."), CKP_ECORRUPT, "never set"},
    {P("Nq\xff."), CKP_ECORRUPT, "memo index"},
    {P("Nr\xff\xff\xff\xff."), CKP_ECORRUPT, "memo index"},
    {P("Np99999999999999999999\n."), CKP_ECORRUPT, "memo"},
    {P("X\xff\xff\xff\xffx."), CKP_ETRUNCATED, "too early"},
    {P("\x8e\xff\xff\xff\xff\xff\xff\xff\xffx."), CKP_ETRUNCATED, "too early"},
    {P("\x8b\xff\xff\xff\xff."), CKP_ETRUNCATED, "too early"},
    {P("X\x01\x00\x00\x00\xff."), CKP_ECORRUPT, "UTF-8"},
    {P("(Nd."), CKP_ECORRUPT, "without a value"},
    {P("N(NNu."), CKP_ECORRUPT, "cannot hold"},
    {P("}(Nu."), CKP_ECORRUPT, "cannot hold"},
    {P("NNa."), CKP_ECORRUPT, "cannot hold"},
    {P("](K\x01\x90."), CKP_ECORRUPT, "cannot hold"},
    {P("I1x\n."), CKP_ECORRUPT, "number"},
    {P("I\n."), CKP_ECORRUPT, "number"},
    {P("I99999999999999999999\n."), CKP_ECORRUPT, "63 bits"},
    {P("F1..5\n."), CKP_ECORRUPT, "float"},
    {P("S'abc\n."), CKP_ECORRUPT, "quotes"},
    {P("Va\\u00g\n."), CKP_ECORRUPT, "escape"},
    {P("\xff."), CKP_ECORRUPT, "opcode"},
    {P("]q\x00h\x00" "a."), CKP_EUNSUPPORTED, "holds itself"},
    {P("}q\x00K\x01h\x00s."), CKP_EUNSUPPORTED, "holds itself"},
    {P("}(K\x01K\x02K\x01K\x03u."), CKP_ECORRUPT, "key twice"},
    {P("\x8f(K\x01K\x01\x90."), CKP_ECORRUPT, "key twice"},
    {P("}]K\x01s."), CKP_EUNSUPPORTED, "key is"},
    {P("c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1\x86R."), CKP_ECORRUPT, "Latin-1"},
    {P("c_codecs\nencode\nX\x01\x00\x00\x00" "aX\x05\x00\x00\x00rot13\x86R."), CKP_ECORRUPT, "does not take"},
    {P("ctorch\nSize\nJ\xff\xff\xff\xff\x85\x85R."), CKP_ECORRUPT, "non-negative"},
    {P("cnumpy\ndtype\nX\x02\x00\x00\x00O8\x89\x88\x87R."), CKP_EUNSUPPORTED, "Python objects"},
    {P("cnumpy\ndtype\nX\x03\x00\x00\x00" "f99\x89\x88\x87R."), CKP_ECORRUPT, "size"},
    {P("cnumpy\ndtype\nX\x09\x00\x00\x00S99999999\x89\x88\x87R."), CKP_OK, ""},
    {P("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85N\x87R."), CKP_ECORRUPT, "never given"},
    {P("K\x01Nb."), CKP_EUNSUPPORTED, "keeps none"},
};

static void
test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        made m = load(bads[i].pickle, bads[i].len);
        if (m.st != bads[i].st || strstr(m.err.text, bads[i].says) == NULL)
            fail_msg("number %zu gives %s: %s (wanted %s)", i, ckp_status_name(m.st), m.err.text, bads[i].says);
        if (m.st == CKP_EUNSAFE)
            assert_true(m.err.offset > 1000 && m.err.offset <= 1000 + bads[i].len);
        drop(&m);
    }
}

/* ---- tensors ---- */

/* _rebuild_tensor_v2(storage of 4 floats, first, (size), (stride), False, OrderedDict()) */
static size_t
tensor_pickle(char *p, const char *first, const char *size, const char *stride, const char *grad)
{
    return (size_t)snprintf(p, 512, "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nVk\nVcpu\nI4\ntQI%s\n(%st(%st%sccollections\n"
                              "OrderedDict\n(tRtR.", first, size, stride, grad);
}

static void
test_views(void **state)
{
    (void)state;
    static const struct { const char *first, *size, *stride, *grad; ckp_status st; } rows[] = {
        {"0", "I4\n", "I1\n", "I00\n", CKP_OK},
        {"0", "I2\nI2\n", "I1\nI2\n", "I01\n", CKP_OK},
        {"2", "I2\n", "I1\n", "I00\n", CKP_OK},
        {"0", "", "", "I00\n", CKP_OK},
        {"9", "I0\nI7\n", "I7\nI1\n", "I00\n", CKP_OK},
        {"0", "I1000\n", "I0\n", "I00\n", CKP_OK},
        {"1", "I4\n", "I1\n", "I00\n", CKP_ECORRUPT},
        {"4", "", "", "I00\n", CKP_ECORRUPT},
        {"0", "I3\n", "I2\n", "I00\n", CKP_ECORRUPT},
        {"0", "I4\n", "I-1\n", "I00\n", CKP_ECORRUPT},
        {"-1", "I1\n", "I1\n", "I00\n", CKP_ECORRUPT},
        {"0", "I4\n", "", "I00\n", CKP_ECORRUPT},
        {"0", "I4\n", "I1\n", "N", CKP_ECORRUPT},
        {"0", "I4294967296\nI4294967296\n", "I0\nI0\n", "I00\n", CKP_ECORRUPT},
        {"0", "I9000000000000000000\n", "I9000000000000000000\n", "I00\n", CKP_ECORRUPT},
        {"9000000000000000000", "I1\n", "I1\n", "I00\n", CKP_ECORRUPT},
    };
    char pickle[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = tensor_pickle(pickle, rows[i].first, rows[i].size, rows[i].stride, rows[i].grad);
        made m = load(pickle, n);
        if (m.st != rows[i].st)
            fail_msg("number %zu gives %s: %s", i, ckp_status_name(m.st), m.err.text);
        drop(&m);
    }
}

/* ---- bombs ---- */

static void
test_deep(void **state)
{
    (void)state;
    const size_t n = 100000;
    char *p = ckpi_malloc(n * 2 + 2, 1);
    memset(p, ']', n);
    memset(p + n, 'a', n - 1);
    p[2 * n - 1] = '.';
    made m = load(p, 2 * n);
    assert_int_equal(m.st, CKP_ELIMIT);
    drop(&m);
    free(p);
}

/* Each list holds the one before twice: 2^60 nodes of some 300 bytes. */
static void
test_billion_laughs(void **state)
{
    (void)state;
    char p[1024] = "(lp0\n";
    size_t n = strlen(p);
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(p + n, sizeof p - n, "(g%d\ng%d\ntp%d\n", i, i, i + 1);
    p[n++] = '.';
    /* what was pushed on the way stays below: take only the last */
    made m = load(p, n);
    assert_int_equal(m.st, CKP_ECORRUPT);
    drop(&m);
    n = (size_t)snprintf(p, sizeof p, "(lp0\n0");
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(p + n, sizeof p - n, "(g%d\ng%d\ntp%d\n%s", i, i, i + 1, i < 59 ? "0" : ".");
    m = load(p, n);
    assert_int_equal(m.st, CKP_ELIMIT);
    assert_true(m.f.state->tree.len < (8u << 20));
    drop(&m);
}

static void
test_many_marks(void **state)
{
    (void)state;
    const size_t n = 5000000;
    char *p = ckpi_malloc(n, 1);
    memset(p, '(', n);
    made m = load(p, n);
    assert_int_equal(m.st, CKP_ELIMIT);
    drop(&m);
    memset(p, 'N', n);
    m = load(p, n);
    assert_int_equal(m.st, CKP_ELIMIT);
    drop(&m);
    free(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good), cmocka_unit_test(test_bad),            cmocka_unit_test(test_views),
        cmocka_unit_test(test_deep), cmocka_unit_test(test_billion_laughs), cmocka_unit_test(test_many_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
