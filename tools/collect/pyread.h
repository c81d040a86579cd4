/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyread.h - objects of a CPython in another process.
 *
 * Everything here reads memory that changes meanwhile and that may lie on purpose:
 * counts are capped, chains are bounded, kinds are checked before use, and a value that
 * does not fit is "not there".
 */
#ifndef WG_PYREAD_H
#define WG_PYREAD_H

#include "mem.h"
#include "python_offsets.h"

#define WG_PY_MAX_THREADS 65536
#define WG_PY_MAX_FRAMES 4096 /* of one thread: deeper recursion is cut */

enum wg_py_flavour { /* how an instance keeps its attributes */
	WG_PY_DICT_PTR,	     /* 3.8-3.10: a pointer at tp_dictoffset */
	WG_PY_MANAGED_311,   /* dict at -3 words, values at -4 */
	WG_PY_MANAGED_312,   /* one word at -3: dict, or values with bit 0 set */
	WG_PY_MANAGED_313,   /* dict at -3, values inside the object */
};

struct wg_py_thread { /* one PyThreadState */
	uint64_t addr, interp, ident; /* ident: pthread_self() */
	int32_t tid;		      /* as the asker sees it; 0 unknown */
	bool main;		      /* the interpreter's main thread */
};

struct wg_py_code { /* a code object, read once */
	uint64_t addr; /* 0 free */
	const char *function, *file;
	const uint8_t *table; /* line table */
	size_t table_len;
	const uint8_t *except; /* exception table, 3.11+ */
	size_t except_len;
	uint64_t names;	       /* tuple of the locals' names */
	uint64_t co_names;     /* tuple of the names of globals and attributes */
	int32_t first_line, first_traceable;
	int32_t nlocals, stack_size;
	int32_t ncells_at; /* 3.8-3.10: slot where cells begin */
	bool acquires; /* its names hold "acquire" */
	bool bad;
};

struct wg_py_frame { /* one frame of Python code, innermost first */
	uint64_t addr;
	const struct wg_py_code *code;
	int64_t lasti; /* bytes into the code; -1 not begun */
	int64_t line;
};

struct wg_py_frames {
	struct wg_py_frame *v;
	size_t n, cap;
};

struct wg_py {
	struct wg_facts *f;
	struct wg_process *p;
	struct wg_mem *m;
	struct wg_arena *arena; /* what dies with this */
	struct wg_py_offsets o;
	enum wg_py_flavour flavour;
	uint64_t runtime, interp; /* the main interpreter */
	uint64_t code_type;
	const char *version;
	WG_VEC(struct wg_py_thread) threads;
	struct wg_py_frames *frames; /* of each thread, as wg_python_collect() read them; NULL */
	struct wg_py_code **codes; /* open-addressed by address; the codes stay in place */
	size_t ncodes, capcodes;
	struct wg_py_pid_map { int32_t inner, outer; } *tids;
	size_t ntids;
	bool same_pidns;
};

/*
 * 0; -ENOENT: no Python in this process; -ENOTSUP: one that this cannot read (*why says
 * which); other -errno: its memory cannot be read.
 */
int wg_py_open(struct wg_py *py, struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
	       struct wg_symbols *s, const char **why);
void wg_py_close(struct wg_py *py);

bool wg_py_u64(struct wg_py *py, uint64_t addr, uint64_t *v);
bool wg_py_i32(struct wg_py *py, uint64_t addr, int32_t *v);
/* A pointer that can be one: not NULL, aligned, mapped. */
bool wg_py_ptr(struct wg_py *py, uint64_t addr, uint64_t *v);
/* The same at base + an offset that this version may lack. */
bool wg_py_field(struct wg_py *py, uint64_t base, uint16_t offset, uint64_t *v);
/* tp_name of an object's type into buf; false: not an object. */
bool wg_py_type_name(struct wg_py *py, uint64_t object, char *buf, size_t n);
bool wg_py_is(struct wg_py *py, uint64_t object, const char *type_name);
/* Does the object's type, or one it derives from, have this name? */
bool wg_py_is_a(struct wg_py *py, uint64_t object, const char *type_name);
/* A str as UTF-8, cut; NULL: not one. In py->arena. */
const char *wg_py_str(struct wg_py *py, uint64_t object);
bool wg_py_long(struct wg_py *py, uint64_t object, uint64_t *v); /* up to 63 bits, not negative */
uint64_t wg_py_dict_get(struct wg_py *py, uint64_t dict, const char *key);  /* 0 not there */
void wg_py_dict_each(struct wg_py *py, uint64_t dict, size_t most,
		     void (*fn)(void *arg, uint64_t value), void *arg);
uint64_t wg_py_attr(struct wg_py *py, uint64_t object, const char *name);   /* instance attribute */
void wg_py_attrs_each(struct wg_py *py, uint64_t object, size_t most,
		      void (*fn)(void *arg, uint64_t value), void *arg);
/* A bound method: its self; name: "__exit__" ... (NULL any). 0: not one. */
uint64_t wg_py_bound_self(struct wg_py *py, uint64_t object, const char *name);
uint64_t wg_py_sys(struct wg_py *py, const char *name); /* sys.NAME of the main interpreter */

bool wg_py_str_is(struct wg_py *py, uint64_t object, const char *ascii);
/* Item k of a tuple; 0 none. */
uint64_t wg_py_item(struct wg_py *py, uint64_t tuple, uint64_t k);
/* A dict's value by a key that is itself a str object of the process. */
uint64_t wg_py_dict_get_key(struct wg_py *py, uint64_t dict, uint64_t key);
/* The bytecode of a frame's code up to most bytes: how many were read. */
size_t wg_py_bytecode(struct wg_py *py, const struct wg_py_code *c, uint8_t *buf, size_t most);

/* Frames of one thread state; the vector is reused. 0, -EAGAIN: it kept changing. */
int wg_py_frames(struct wg_py *py, const struct wg_py_thread *t, struct wg_py_frames *out);
int32_t wg_py_tid_of_ident(const struct wg_py *py, uint64_t ident);
/* The k-th local variable (then: value stack) of a frame; 0 unset. */
uint64_t wg_py_slot(struct wg_py *py, const struct wg_py_frame *fr, int k);
uint64_t wg_py_stack_slot(struct wg_py *py, const struct wg_py_frame *fr, int k);
int64_t wg_py_line(struct wg_py *py, const struct wg_py_frame *fr, int64_t at);
/* Is it the function of this name in a file that ends so? */
bool wg_py_at(const struct wg_py_frame *fr, const char *file_end, const char *function);
uint64_t wg_py_local(struct wg_py *py, const struct wg_py_frame *fr, const char *name);

/* The frame of a generator that is suspended; false: it has none. */
bool wg_py_generator(struct wg_py *py, uint64_t generator, struct wg_py_frame *out);
/* The items of a collections.deque of at most 64: how many were read. */
size_t wg_py_deque(struct wg_py *py, uint64_t deque, uint64_t items[64]);

/* python_locks.c, python_hands.c: called by wg_python_collect(), in this order */
void wg_python_locks(struct wg_py *py);
void wg_python_hands(struct wg_py *py);

#endif
