/* The numbers of agviz/measure/elements.py for dense float and double, in one pass over the memory.
 *
 * Plain C without Python.h: agviz/measure/kernel.py loads it through ctypes, and one file serves
 * every version of Python. Few elements are measured through functions of Python's own, because
 * ctypes takes longer to call than they take to be read. Where no C compiler was there to build it,
 * torch's own reductions find the same numbers in five passes.
 *
 * The quick pass adds LANES independent columns, which compilers turn into vector instructions
 * without leave to reorder anything, and carries short columns over into doubles. It goes block by
 * block, and blocks are added up in their order, so that the answer is the same however many
 * threads there are. It answers where all is finite and no square overflowed or vanished; else the
 * careful passes do.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16 /* two of AVX2's vectors: with four, what is kept in registers would not fit */
#define ROWS 64
#define BLOCK (1 << 16)
#define LINE 64
#define AHEAD 8192 /* bytes; processors do not look beyond a page of 4096 by themselves */

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Fields of agviz_engine.elements.Part behind `numbers`, in its order. */
struct part {
    int64_t nan, posinf, neginf, finite, zero;
    double min, max, mean, norm;
};

struct block {
    int64_t zeros;
    double min, max, sum, squares;
};

struct work {
    const void *elements;
    int64_t count, next;
    struct block *blocks;
};

struct method {
    const char *name;
    void *function;
    int flags;
    const char *text;
};

enum { METH_O = 0x08, METH_FASTCALL = 0x80 };

/* Documented functions of Python's stable ABI. */
extern char _Py_NoneStruct;
extern void *PyBytes_FromStringAndSize(const char *, intptr_t);
extern void *PyCFunction_NewEx(struct method *, void *, void *);
extern void *PyDict_GetItemWithError(void *, void *);
extern void *PyErr_Occurred(void);
extern void *PyFloat_FromDouble(double);
extern intptr_t PyLong_AsSsize_t(void *);
extern void *PyLong_AsVoidPtr(void *);
extern void *PyLong_FromLongLong(long long);
extern void *PyTuple_New(intptr_t);
extern void *PyTuple_Pack(intptr_t, ...);
extern int PyTuple_SetItem(void *, intptr_t, void *);
extern void Py_DecRef(void *);
extern void Py_IncRef(void *);

/* GOMP_parallel of the OpenMP library that torch uses, so that its threads do the work. */
typedef void (*parallel_t)(void (*)(void *), void *, unsigned, unsigned);

static void *as_tuple(const struct part *part)
{
    void *found = PyTuple_New(9);
    const int64_t counts[] = {part->nan, part->posinf, part->neginf, part->finite, part->zero};
    const double numbers[] = {part->min, part->max, part->mean, part->norm};
    int failed = !found;
    for (int i = 0; i < 9 && !failed; i++) {
        void *item = i < 5 ? PyLong_FromLongLong(counts[i]) : PyFloat_FromDouble(numbers[i - 5]);
        failed = !item || PyTuple_SetItem(found, i, item);
    }
    if (failed) {
        Py_DecRef(found);
        return NULL;
    }
    return found;
}

#define DEFINE(REAL, COUNT, NAME, LEAST, FAR)                                                      \
    FOR_EACH_PROCESSOR static struct block NAME##_columns(const REAL *x, int64_t rows)             \
    {                                                                                              \
        struct block b = {0};                                                                      \
        REAL low[LANES], high[LANES];                                                              \
        double sums[LANES] = {0}, squares[LANES] = {0};                                            \
        COUNT zeros[LANES] = {0};                                                                  \
        for (int j = 0; j < LANES; j++) {                                                          \
            low[j] = INFINITY;                                                                     \
            high[j] = -INFINITY;                                                                   \
        }                                                                                          \
        while (rows > 0) {                                                                         \
            REAL s[LANES] = {0}, q[LANES] = {0};                                                   \
            int64_t row = rows < ROWS ? rows : ROWS;                                               \
            for (rows -= row; row > 0; row--, x += LANES) {                                        \
                for (size_t line = 0; line < LANES * sizeof(REAL); line += LINE)                   \
                    PREFETCH((const char *)x + AHEAD + line);                                      \
                for (int j = 0; j < LANES; j++) {                                                  \
                    REAL v = x[j];                                                                 \
                    s[j] += v;                                                                     \
                    q[j] += v * v;                                                                 \
                    low[j] = v < low[j] ? v : low[j];                                              \
                    high[j] = v > high[j] ? v : high[j];                                           \
                    zeros[j] += v == 0;                                                            \
                }                                                                                  \
            }                                                                                      \
            for (int j = 0; j < LANES; j++) {                                                      \
                sums[j] += s[j];                                                                   \
                squares[j] += q[j];                                                                \
            }                                                                                      \
        }                                                                                          \
        REAL min = INFINITY, max = -INFINITY;                                                      \
        for (int j = 0; j < LANES; j++) {                                                          \
            min = low[j] < min ? low[j] : min;                                                     \
            max = high[j] > max ? high[j] : max;                                                   \
            b.sum += sums[j];                                                                      \
            b.squares += squares[j];                                                               \
            b.zeros += zeros[j];                                                                   \
        }                                                                                          \
        b.min = min;                                                                               \
        b.max = max;                                                                               \
        return b;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static struct block NAME##_block(const REAL *x, int64_t n)                                     \
    {                                                                                              \
        struct block b = {.min = INFINITY, .max = -INFINITY};                                      \
        int64_t rows = n / LANES;                                                                  \
        if (rows)                                                                                  \
            b = NAME##_columns(x, rows);                                                           \
        for (int64_t i = rows * LANES; i < n; i++) {                                               \
            double v = x[i];                                                                       \
            b.sum += v;                                                                            \
            b.squares += v * v;                                                                    \
            b.min = v < b.min ? v : b.min;                                                         \
            b.max = v > b.max ? v : b.max;                                                         \
            b.zeros += v == 0;                                                                     \
        }                                                                                          \
        return b;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static void NAME##_worker(void *given)                                                         \
    {                                                                                              \
        struct work *work = given;                                                                 \
        for (;;) {                                                                                 \
            int64_t block = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);                  \
            int64_t begin = block * BLOCK, left = work->count - begin;                             \
            if (left <= 0)                                                                         \
                return;                                                                            \
            const REAL *x = work->elements;                                                        \
            work->blocks[block] = NAME##_block(x + begin, left < BLOCK ? left : BLOCK);            \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    FOR_EACH_PROCESSOR static double NAME##_scaled(const REAL *x, int64_t n, double scale)         \
    {                                                                                              \
        double squares[LANES] = {0}, sum = 0, inverse = 1 / scale;                                 \
        int64_t rows = n / LANES;                                                                  \
        for (int64_t row = 0; row < rows; row++, x += LANES)                                       \
            for (int j = 0; j < LANES; j++) {                                                      \
                double v = x[j] * inverse;                                                         \
                squares[j] += v * v;                                                               \
            }                                                                                      \
        for (int64_t i = 0; i < n - rows * LANES; i++) {                                           \
            double v = x[i] * inverse;                                                             \
            sum += v * v;                                                                          \
        }                                                                                          \
        for (int j = 0; j < LANES; j++)                                                            \
            sum += squares[j];                                                                     \
        return sqrt(sum) * scale;                                                                  \
    }                                                                                              \
                                                                                                   \
    static int NAME##_quick(                                                                       \
        const REAL *x, int64_t n, struct part *part, parallel_t parallel, unsigned threads)        \
    {                                                                                              \
        struct block few[16], *blocks = few, all = {.min = INFINITY, .max = -INFINITY};            \
        int64_t count = (n + BLOCK - 1) / BLOCK;                                                   \
        if (count > 16 && !(blocks = malloc(count * sizeof *blocks)))                              \
            return 0;                                                                              \
        struct work work = {x, n, 0, blocks};                                                      \
        if (parallel && threads > 1 && count > 1)                                                  \
            parallel(NAME##_worker, &work, threads < count ? threads : (unsigned)count, 0);        \
        else                                                                                       \
            NAME##_worker(&work);                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                      \
            all.zeros += blocks[i].zeros;                                                          \
            all.sum += blocks[i].sum;                                                              \
            all.squares += blocks[i].squares;                                                      \
            all.min = blocks[i].min < all.min ? blocks[i].min : all.min;                           \
            all.max = blocks[i].max > all.max ? blocks[i].max : all.max;                           \
        }                                                                                          \
        if (blocks != few)                                                                         \
            free(blocks);                                                                          \
        if (!isfinite(all.sum))                                                                    \
            return 0;                                                                              \
        double mean = all.sum / n, norm = sqrt(all.squares);                                       \
        double magnitude = -all.min > all.max ? -all.min : all.max;                                \
        if (all.zeros < n && !(magnitude > LEAST && magnitude < 1 / LEAST)) {                      \
            if (!(magnitude > FAR && magnitude < 1 / FAR))                                         \
                return 0;                                                                          \
            norm = NAME##_scaled(x, n, magnitude);                                                 \
        }                                                                                          \
        *part = (struct part){0, 0, 0, n, all.zeros, all.min + 0.0, all.max + 0.0, mean, norm};    \
        return 1;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static void NAME##_careful(const REAL *x, int64_t n, struct part *part)                        \
    {                                                                                              \
        struct part p = {.min = INFINITY, .max = -INFINITY};                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            double v = x[i];                                                                       \
            if (isnan(v))                                                                          \
                p.nan++;                                                                           \
            else if (isinf(v))                                                                     \
                v > 0 ? p.posinf++ : p.neginf++;                                                   \
            else {                                                                                 \
                p.finite++;                                                                        \
                p.zero += v == 0;                                                                  \
                p.min = v < p.min ? v : p.min;                                                     \
                p.max = v > p.max ? v : p.max;                                                     \
            }                                                                                      \
        }                                                                                          \
        double scale = -p.min > p.max ? -p.min : p.max, mean = 0, squares = 0;                     \
        if (p.finite && scale > 0) {                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                double v = x[i];                                                                   \
                if (isfinite(v)) {                                                                 \
                    v /= scale;                                                                    \
                    mean += v;                                                                     \
                    squares += v * v;                                                              \
                }                                                                                  \
            }                                                                                      \
            p.mean = mean / p.finite * scale;                                                      \
            p.norm = sqrt(squares) * scale;                                                        \
        }                                                                                          \
        if (p.finite) {                                                                            \
            p.min += 0.0;                                                                          \
            p.max += 0.0;                                                                          \
        }                                                                                          \
        *part = p;                                                                                 \
    }                                                                                              \
                                                                                                   \
    EXPORTED void agviz_measure_##NAME(                                                            \
        const REAL *x, int64_t n, struct part *part, parallel_t parallel, unsigned threads)        \
    {                                                                                              \
        if (!NAME##_quick(x, n, part, parallel, threads))                                          \
            NAME##_careful(x, n, part);                                                            \
    }                                                                                              \
                                                                                                   \
    static void *NAME##_few(void *self, void *const *given, intptr_t count)                        \
    {                                                                                              \
        struct part part;                                                                          \
        (void)self, (void)count;                                                                   \
        const REAL *x = PyLong_AsVoidPtr(given[0]);                                                \
        intptr_t n = PyLong_AsSsize_t(given[1]);                                                   \
        if (PyErr_Occurred())                                                                      \
            return NULL;                                                                           \
        agviz_measure_##NAME(x, n, &part, 0, 1);                                                   \
        return as_tuple(&part);                                                                    \
    }

/* Squares of what is between LEAST and its inverse are added as they are; sums down to FAR are. */
DEFINE(float, int32_t, float32, 1e-12, 1e-30)
DEFINE(double, int64_t, float64, 1e-140, 1e-280)

static struct method few[] = {
    {"few_float32", float32_few, METH_FASTCALL, NULL},
    {"few_float64", float64_few, METH_FASTCALL, NULL}};

/* A tuple: for float and double a function that takes an address and a number of elements, and
 * gives the fields of a part. It keeps the interpreter to itself. NULL, and an exception, where
 * they can't be made. */
EXPORTED void *agviz_few(void)
{
    void *float32 = PyCFunction_NewEx(&few[0], NULL, NULL);
    void *float64 = float32 ? PyCFunction_NewEx(&few[1], NULL, NULL) : NULL;
    return float64 ? PyTuple_Pack(2, float32, float64) : NULL;
}

/* Where the facts about a tensor are that its block is made of, see block_reader of
 * agviz_engine/torch_layout.py: numbers of bytes. */
static struct places {
    intptr_t pointer, begin, most, sizes, rest;
} places;
static void *known;
enum { LONGEST = 512 };

/* What is known of tensors with the block of this one; None: nothing. */
static void *known_of(void *self, void *tensor)
{
    char block[LONGEST], *end = block;
    const char *facts = *(char **)((char *)tensor + places.pointer) + places.begin;
    uint64_t dimensions = *(const uint64_t *)facts;
    void *found = NULL;
    (void)self;
    if (dimensions <= (uint64_t)places.most) {
        intptr_t used = dimensions * sizeof dimensions;
        const char *strides = facts + sizeof dimensions + places.sizes;
        end = (char *)memcpy(end, facts, sizeof dimensions + used) + sizeof dimensions + used;
        end = (char *)memcpy(end, strides, used) + used;
        end = (char *)memcpy(end, strides + places.sizes, places.rest) + places.rest;
        void *bytes = PyBytes_FromStringAndSize(block, end - block);
        found = bytes ? PyDict_GetItemWithError(known, bytes) : NULL;
        Py_DecRef(bytes);
        if (!found && PyErr_Occurred())
            return NULL;
    }
    found = found ? found : &_Py_NoneStruct;
    Py_IncRef(found);
    return found;
}

static struct method lookup = {"known_of", known_of, METH_O, NULL};

/* A function that takes a tensor of torch's own types, and gives what `dictionary`, which has to
 * live on, has under its block. None: where they would not fit. To be called once. */
EXPORTED void *agviz_lookup(const struct places *given, void *dictionary)
{
    places = *given;
    known = dictionary;
    if (sizeof(uint64_t) + 2 * places.sizes + places.rest > LONGEST) {
        Py_IncRef(&_Py_NoneStruct);
        return &_Py_NoneStruct;
    }
    return PyCFunction_NewEx(&lookup, NULL, NULL);
}
