/* Captures the Python stack of the calling thread, in one object that holds nothing else.
 *
 * Plain C without Python.h: agviz/record/capturing.py loads it through ctypes, and checks that
 * objects begin as they do here. What it calls are documented functions of Python's C API, so that
 * one file serves every version of Python. Where no C compiler was there to build it, torch's own
 * function captures.
 */

#include <stddef.h>
#include <stdint.h>

#define MOST 400 /* frames, the innermost: MOST_FRAMES of capturing.py */

#define EXPORTED __attribute__((visibility("default")))

/* The beginning of every object that has a size. */
struct header {
    intptr_t references;
    void *type;
    intptr_t size;
};

/* As in torch's CapturedTraceback, without bytes that are left undefined. */
struct position {
    void *code;
    int32_t instruction, unused;
};

struct stack {
    struct header header;
    struct position positions[]; /* innermost first */
};

struct slot {
    int id;
    void *function;
};

struct spec {
    const char *name;
    int basic_size, item_size;
    unsigned flags;
    struct slot *slots;
};

struct method {
    const char *name;
    void *(*function)(void *, void *);
    int flags;
    const char *text;
};

/* Values of the stable ABI, of typeslots.h, methodobject.h and object.h. */
enum { TP_DEALLOC = 52, TP_ITER = 62, TP_METHODS = 64, TP_FREE = 74 };
enum { METH_NOARGS = 4 };

/* Borrowed; all others give new references. */
extern void *PyEval_GetFrame(void);
extern void *PyFrame_GetBack(void *);
extern void *PyFrame_GetCode(void *);
extern int PyFrame_GetLasti(void *);
extern void Py_IncRef(void *);
extern void Py_DecRef(void *);
extern void *PyType_FromSpec(struct spec *);
extern void *PyType_GetSlot(void *, int);
extern void *PyType_GenericAlloc(void *, intptr_t);
extern void *PyCFunction_NewEx(struct method *, void *, void *);
extern void *PyTuple_New(intptr_t);
extern void *PyTuple_Pack(intptr_t, ...);
extern void *PyList_New(intptr_t);
extern void *PyObject_GetIter(void *);

static void *type, *nothing;
static int64_t left;

static void dealloc(struct stack *stack)
{
    void *own = stack->header.type;
    void (*release)(void *) = (void (*)(void *))PyType_GetSlot(own, TP_FREE);
    for (intptr_t i = 0; i < stack->header.size; i++) {
        Py_DecRef(stack->positions[i].code);
    }
    release(stack);
    Py_DecRef(own);
}

/* To all who join or iterate over it, an empty stack of anomaly mode. */
static void *iter(void *self)
{
    (void)self;
    void *empty = PyTuple_New(0);
    void *found = empty ? PyObject_GetIter(empty) : NULL;
    Py_DecRef(empty);
    return found;
}

/* An empty stack. Torch's compilers take a copy to append to. */
static void *copy(void *self, void *unused)
{
    (void)self, (void)unused;
    return PyList_New(0);
}

static void *capture(void *self, void *unused)
{
    (void)self, (void)unused;
    struct position found[MOST];
    intptr_t count = 0;
    void *frame = PyEval_GetFrame();
    Py_IncRef(frame);
    while (frame && count < MOST) {
        found[count++] = (struct position){PyFrame_GetCode(frame), PyFrame_GetLasti(frame), 0};
        void *back = PyFrame_GetBack(frame);
        Py_DecRef(frame);
        frame = back;
    }
    Py_DecRef(frame);
    struct stack *made = PyType_GenericAlloc(type, count);
    for (intptr_t i = 0; i < count; i++) {
        if (made) {
            made->positions[i] = found[i];
        } else {
            Py_DecRef(found[i].code);
        }
    }
    return made;
}

static void *capture_some(void *self, void *unused)
{
    if (left <= 0) {
        Py_IncRef(nothing);
        return nothing;
    }
    left--;
    return capture(self, unused);
}

static struct method copies[] = {{"copy", copy, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct slot slots[] = {
    {TP_DEALLOC, dealloc}, {TP_ITER, iter}, {TP_METHODS, copies}, {0, NULL}};
static struct spec spec = {
    "agviz.CapturedStack", sizeof(struct stack), sizeof(struct position), 0, slots};
static struct method captures[] = {
    {"capture", capture, METH_NOARGS, NULL}, {"capture_some", capture_some, METH_NOARGS, NULL}};

/* A tuple: the function that captures, the one that does so as often as it may, and what that one
 * gives after that. NULL, and an exception, where they can't be made. To be called once. */
EXPORTED void *agviz_functions(void)
{
    type = PyType_FromSpec(&spec);
    nothing = type ? PyType_GenericAlloc(type, 0) : NULL;
    void *all = nothing ? PyCFunction_NewEx(&captures[0], NULL, NULL) : NULL;
    void *some = all ? PyCFunction_NewEx(&captures[1], NULL, NULL) : NULL;
    return some ? PyTuple_Pack(3, all, some, nothing) : NULL;
}

/* How many stacks may be captured from now on. */
EXPORTED void agviz_allow(int64_t count)
{
    left = count;
}
