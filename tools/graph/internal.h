/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of the graph engine share. Not seen outside tools/graph.
 *
 * The engine works in six steps, each a pure function of the one before:
 *
 *   index     hash tables over the facts: tids, pipes, sockets, communicators ...
 *   resolve   one resolver for each kind of wait: facts of a blocked thread -> edges
 *   fate      least fixpoint over the and/or graph: what can still move?
 *   cycles    strongly connected parts of what cannot
 *   verdict   symptoms, the walk to the end, the class by the contract's order
 *   wording   sentences for people; emit: nodes and edges for the renderers
 *
 * A node waits for ALL of its targets (a collective for every rank), for ANY of them (a
 * reader for any writer), or for ONE that is not known (a join whose thread could not be
 * read). Fates are ordered, so each mode is a minimum or maximum, every step is monotone
 * and the fixpoint from below is what is called a deadlock in such graphs: only what has a
 * reason to move is called moving.
 */
#ifndef WG_GRAPH_INTERNAL_H
#define WG_GRAPH_INTERNAL_H

#include <stdio.h>
#include <string.h>

#include "graph.h"

/* In the order of the contract's table; the names are in names.c. */
enum wg_class {
	CL_NONE,
	CL_DEADLOCK,
	CL_LOCK_SELF,
	CL_LOCK_ORPHANED,
	CL_LOCK_AFTER_FORK,
	CL_NO_WAKER,
	CL_COLL_MISSING,
	CL_COLL_CYCLE,
	CL_COLL_MISMATCH,
	CL_PEER_DEAD,
	CL_PEER_SILENT,
	CL_KERNEL_STUCK,
	CL_GPU_UNSIGNALED,
	CL_HOST_CALLBACK,
	CL_OOM_SWALLOWED,
	CL_PIPE_FULL,
	CL_WRITE_BLOCKED,
	CL_READ_BLOCKED,
	CL_FILE_LOCK,
	CL_STOPPED,
	CL_IMPLICIT_SYNC,
	CL_SPIN_WAIT,
	CL_RESOURCE,
	CL_DRIVER_BLOCKED,
	CL_BUSY_CPU,
	CL_BUSY_GPU,
	CL_LOG_BUFFERED,
	CL_IDLE,
	CL_PROGRESSING,
	CL_UNKNOWN,
	CL_COUNT
};
extern const char *const wg_class_names[CL_COUNT];

/* Ordered: a higher fate is a better reason to believe that it moves. */
enum wg_fate {
	FATE_STUCK,   /* nothing known can move it */
	FATE_UNKNOWN, /* a fact is missing */
	FATE_IDLE,    /* waits by design: a timer, a request, a person */
	FATE_PENDING, /* may well move by itself soon: a young kernel, a short timer */
	FATE_MOVING,  /* works, or moved between the samples */
};
enum wg_mode {
	MODE_ALL,
	MODE_ANY,
	MODE_ONE,
	MODE_ACTOR, /* a process: whoever of it moves; if none does, whoever of it hangs */
};

enum wg_itype {
	IT_THREAD, IT_PROCESS, IT_LOCK, IT_GIL, IT_STREAM, IT_EVENT, IT_COLLECTIVE, IT_PIPE,
	IT_SOCKET, IT_FILE, IT_FILE_LOCK,
	IT_WAKERS, /* "the other threads of this process": who could signal an ownerless object */
	IT_JOINED, /* "the other Python threads": one of them is joined, not known which */
	IT_RANK,   /* a rank of which no process is known */
};

/* What a node is by itself, beside its edges. */
struct wg_iend {
	enum wg_class cls; /* CL_NONE: nothing */
	enum wg_fate fate;
	enum wg_certainty certainty;
	const char *text;    /* "its kernel `foo' has run for 31 s": no dot, no capital */
	const char *missing; /* UNKNOWN: the fact that is missing */
	double timer_s;	     /* IDLE by a sleep: its length; WG_NO_SEC */
	int64_t pid, tid, rank; /* culprit, where it is not the node itself; WG_NO_INT */
	const char *who;	/* the culprit's `what`; NULL: made from the node */
	const char *comm;
	bool gone; /* contract rule 1 */
	bool person; /* IDLE: it waits for a key press */
};

struct wg_inode {
	enum wg_itype type;
	enum wg_mode mode;
	enum wg_fate fate;
	bool has_end;
	bool visible;	 /* goes into the graph that is shown */
	bool bystander;	 /* threads */
	bool ownerless;	 /* a thread that waits on something that has no owner: see hub */
	bool awaits_task; /* a pool's worker at rest */
	bool polls_cpu;	 /* burns CPU by waiting: that is no work */
	bool person;	 /* IDLE: behind it a person is waited for, at a terminal */
	bool mismatch;
	int32_t proc;	 /* index into facts->procs; -1 none */
	int32_t thr;	 /* index into its threads; -1 none */
	uint32_t first;	 /* first edge + 1; 0 none */
	uint32_t last;	 /* last edge + 1 */
	uint32_t nout;
	uint32_t scc;	 /* component of stuck nodes over edges that are no guesses; 0 none */
	uint32_t loose;	 /* the same with the guesses */
	bool cyclic, closed; /* of scc: it is a cycle; no alternative leads out of it */
	bool value_cycle;    /* of loose: a GPU's value and an unnamed synchronisation */
	bool loose_cycle;    /* of loose: a lock held by one who waits for somebody in it */
	double timer;	     /* IDLE: the longest short timer behind it; WG_NO_SEC */
	uint32_t shown;	 /* index + 1 in graph->nodes, set by emit.c */
	struct wg_iend end;
	const void *obj; /* wg_stream, wg_comm group, wg_file ... by type */
	uint64_t a, b;	 /* key */
	const char *label;
	const char *id;
	/* threads: how the wait reads */
	const char *wkind, *wobject, *wcall, *wdoes; /* wdoes: "waits in cuStreamSynchronize" */
	double wsince;
};

struct wg_iedge {
	uint32_t from, to, next; /* next: edge + 1 of the same source */
	enum wg_edge_kind kind;
	enum wg_class idle_cls; /* class if `to` merely idles (silent, missing ...); CL_NONE: idle */
	double since;		/* of the wait that made the edge */
	const char *evidence;
	const char *says; /* for the chain: "for the mutex 0x.. held by"; NULL: made from the kinds */
	bool certain;
	bool guess;	/* by elimination: the target could act, nothing shows that it will */
	bool implicit;	/* an unnamed synchronisation */
	bool hidden;	/* only for the walk */
	bool lost;	/* a guess that something better speaks against: moving targets do not count */
	uint32_t step;	/* its place in the chain that the verdict tells, from 1; 0: not in it */
};

/* ---- hash map of three words to a number ---------------------------------- */

struct wg_map {
	struct { uint64_t k[3]; uint32_t v; bool used; } *slot;
	size_t n, cap;
};
void wg_map_put(struct wg_arena *a, struct wg_map *m, uint64_t k0, uint64_t k1, uint64_t k2,
		uint32_t v); /* replaces */
uint32_t wg_map_get(const struct wg_map *m, uint64_t k0, uint64_t k1, uint64_t k2); /* ~0u: no */
#define WG_NONE (~0u)

/* ---- the builder ------------------------------------------------------------ */

struct wg_holder { /* a process that holds one end of a pipe, socket or file */
	uint32_t next;	/* index + 1 */
	int32_t proc;
	uint32_t file;	/* index into its files */
};

struct wg_member { /* a rank of a communicator, as far as known */
	int32_t proc; /* -1: no process known */
	const struct wg_comm *comm;
	const struct wg_peer *peer; /* what others tell about it */
	bool dead;
	bool guessed; /* proc by elimination */
};
struct wg_group { /* one communicator over all processes */
	const char *id;
	int64_t size;	 /* -1 unknown */
	struct wg_member *member;
	int64_t nmember; /* = size, or as many as were seen */
	bool p2p_seen;
	int64_t mismatch_seq; /* earliest sequence at which ranks disagree; -1 none */
	const char *mismatch_text;
	int64_t mismatch_rank;
	bool mismatch_certain;
};

struct wg_pinfo {
	const struct wg_process *p;
	uint32_t tbase;	  /* node of its first thread */
	uint32_t node;	  /* node of the process */
	uint32_t host;	  /* interned host and boot */
	int64_t rank;	  /* launcher's, else of the largest communicator */
	int32_t main_thr; /* index of the leader, -1 none */
	uint32_t nown;	  /* threads of the program itself, without the recorder's */
	bool asked, dead, is_self, have_fsbase, have_stacks;
	int32_t parent;	  /* index of the parent process; -1 */
	const char *name; /* "rank 3 (pid 123)" or "python (pid 123)" */
	struct wg_map nstids, fsbase; /* made at the first question */
	struct wg_map stacks; /* stack hash -> number of threads with it */
	struct wg_map events; /* event handle -> stream index, of pending records */
};

struct wg_b {
	struct wg_graph *g;
	const struct wg_facts *f;
	struct wg_arena *a;
	struct wg_pinfo *pi;
	uint32_t np;
	WG_VEC(struct wg_inode) n;
	WG_VEC(struct wg_iedge) e;
	struct wg_map nodes;   /* (type, a, b) */
	struct wg_map tids;    /* (host, tid) -> thread node; made at the first question */
	struct wg_map sharedtids; /* (pidns, ns_tid) -> thread node; likewise */
	struct wg_map pids;    /* (host, pid) -> proc index */
	struct wg_map pipes;   /* (host, dev, ino) -> first holder + 1 */
	struct wg_map socks;   /* (host, ino) -> first holder + 1 */
	struct wg_map files;   /* (host, dev, ino) -> first holder + 1, regular files with locks */
	struct wg_map eventfds;
	struct wg_map flocks;  /* (dev, ino) -> first lock index + 1 */
	struct wg_map fds;     /* (proc, fd) -> file index */
	struct wg_map ids;     /* of shown nodes: how often given */
	struct wg_map gone;    /* tid */
	struct wg_map pylocks; /* (dev, ino, offset) of a shared word -> proc << 12 | lock, + 1 */
	uint32_t *flock_next;
	WG_VEC(struct wg_holder) holders;
	WG_VEC(struct wg_group) groups;
	struct wg_map groupmap; /* (hash of id, collision number) -> group */
	WG_VEC(const char *) hosts;
	struct wg_walk *walk; /* chains.c: its arrays, used again for each symptom */
	bool with_deaths_since; /* count what died after all snapshots were taken as dead */
};

/* node.c: nodes and edges */
uint32_t wg_node(struct wg_b *b, enum wg_itype type, uint64_t a, uint64_t k, bool *fresh);
struct wg_iedge *wg_edge(struct wg_b *b, uint32_t from, uint32_t to, enum wg_edge_kind kind,
			 bool certain, const char *evidence);
void wg_set_end(struct wg_b *b, uint32_t n, enum wg_class cls, enum wg_fate fate,
		enum wg_certainty certainty, const char *text);
const char *wg_say(struct wg_b *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *wg_secs(struct wg_b *b, double s); /* "12 s", "3.4 s", "2 h 5 min" */
const char *wg_bytes(struct wg_b *b, int64_t n);

/* index.c */
void wg_index(struct wg_b *b);
uint32_t wg_tid_node(struct wg_b *b, int32_t proc, int32_t ns_tid); /* as the process counts */
uint32_t wg_any_tid_node(struct wg_b *b, uint32_t host, int32_t tid);   /* as the asker counts */
uint32_t wg_shared_tid_node(struct wg_b *b, uint64_t pidns, int32_t ns_tid);
uint32_t wg_fsbase_node(struct wg_b *b, int32_t proc, uint64_t fsbase);
uint32_t wg_same_stack(struct wg_b *b, int32_t proc, const struct wg_thread *t); /* how many */
int32_t wg_pid_proc(const struct wg_b *b, uint32_t host, int32_t pid);	   /* -1 none */
const struct wg_file *wg_fd(const struct wg_b *b, int32_t proc, int64_t fd);
struct wg_group *wg_group_of(struct wg_b *b, const char *id);
const struct wg_env *wg_env_of(const struct wg_process *p, const char *name);
static inline const struct wg_process *wg_proc(const struct wg_b *b, const struct wg_inode *n)
{
	return n->proc < 0 ? NULL : b->f->procs.v[n->proc];
}
static inline const struct wg_thread *wg_thr(const struct wg_b *b, const struct wg_inode *n)
{
	return n->proc < 0 || n->thr < 0 ? NULL : &b->f->procs.v[n->proc]->threads.v[n->thr];
}
bool wg_is_ancestor(const struct wg_b *b, int32_t anc, int32_t proc);

/* frames.c: what stacks tell */
const char *wg_base(const char *path);
bool wg_base_in(const char *path, const char *const *list, size_t n);
bool wg_module_is(const struct wg_frame *f, const char *prefix); /* base name starts with prefix */
bool wg_has_symbol(const struct wg_thread *t, const char *symbol);   /* anywhere */
bool wg_has_symbol_prefix(const struct wg_thread *t, const char *prefix);
bool wg_is_plumbing(const struct wg_frame *f); /* libc, libpthread, libstdc++, the loader, vdso */
const struct wg_frame *wg_caller(const struct wg_thread *t); /* innermost frame of the program */
const struct wg_frame *wg_start_function(const struct wg_thread *t); /* outermost but libc's start */
bool wg_frames_py_is(const struct wg_pyframe *f, const char *file, const char *function);
bool wg_frames_py_at(const struct wg_thread *t, const char *file, const char *function); /* innermost */
bool wg_py_has(const struct wg_thread *t, const char *file, const char *function);
const char *wg_py_top(struct wg_b *b, const struct wg_thread *t); /* "load (data.py:12)"; NULL */
const char *wg_where(struct wg_b *b, const struct wg_thread *t);  /* best frame to name; NULL */
const char *wg_where_failed(struct wg_b *b, const struct wg_failure *x); /* the same, of who asked */
bool wg_kernel_has(const struct wg_thread *t, const char *prefix);
uint64_t wg_stack_hash(const struct wg_thread *t); /* 0: no stack */

/* progress.c */
enum wg_still { STILL_NO, STILL_YES, STILL_UNKNOWN };
enum wg_still wg_still(const struct wg_b *b, const struct wg_process *p, const struct wg_thread *t);
bool wg_on_cpu(const struct wg_b *b, const struct wg_process *p, const struct wg_thread *t);
double wg_call_since(const struct wg_thread *t);
enum wg_loop { LOOP_UNKNOWN, LOOP_POLLS, LOOP_COMPUTES };
enum wg_loop wg_loop_kind(const struct wg_thread *t, uint64_t *lo, uint64_t *hi);
/* code.c: x86-64 and aarch64: does this code store, count or call? */
enum wg_loop wg_code_kind(const uint8_t *code, size_t n, uint64_t at, uint64_t lo, uint64_t hi);

/* bystander.c */
bool wg_is_bystander(struct wg_b *b, int32_t proc, const struct wg_thread *t);

/* resolve.c and its kinds. Each adds edges and ends for one blocked thread. */
struct wg_ctx { /* one thread under resolution */
	struct wg_b *b;
	int32_t proc;
	const struct wg_process *p;
	const struct wg_thread *t;
	uint32_t node;
};
void wg_resolve_all(struct wg_b *b);
/* Futex calls without the private flag on private memory (std::future, guards) are private. */
static inline bool wg_shared_word(const struct wg_futex *fx)
{
	return fx->is_shared && (!fx->has_map || fx->map_ino);
}
bool wg_resolve_gil(struct wg_ctx *c);
void wg_resolve_futex(struct wg_ctx *c);
bool wg_futex_owned(struct wg_ctx *c); /* resolves if the word names an owner */
void wg_resolve_ownerless(struct wg_ctx *c, uint32_t lock, const char *what);
bool wg_resolve_python(struct wg_ctx *c, uint32_t lock);
const struct wg_pylock *wg_pylock_of(const struct wg_ctx *c); /* what it waits for; NULL */
static inline bool wg_py_own_lock(const struct wg_ctx *c)
{
	const struct wg_pylock *l = wg_pylock_of(c);

	return l && l->own_made;
}
bool wg_awaits_task(const struct wg_process *p, const struct wg_thread *t);
bool wg_resolve_gpu_call(struct wg_ctx *c);
void wg_resolve_fd_io(struct wg_ctx *c, const struct wg_file *file, bool writes, double timeout);
bool wg_fd_targets(struct wg_ctx *c, const struct wg_file *file, bool writes, double timeout);
void wg_resolve_poll(struct wg_ctx *c);
bool wg_own_ends(const struct wg_ctx *c, const struct wg_file *x); /* nobody else has either end */
void wg_resolve_wait(struct wg_ctx *c);
bool wg_resolve_sigwait(struct wg_ctx *c); /* a wait for SIGCHLD with children */
void wg_resolve_ipc(struct wg_ctx *c);
bool wg_kin_targets(struct wg_ctx *c, uint32_t from);
uint32_t wg_fuse_server(struct wg_ctx *c, int32_t proc, bool *sure); /* resolve_fuse.c */
bool wg_sharer_targets(struct wg_ctx *c, uint32_t lock); /* resolve_share.c */
bool wg_polled_targets(struct wg_ctx *c, uint32_t from);
bool wg_sysv_targets(struct wg_ctx *c, uint32_t node);
void wg_resolve_file_lock(struct wg_ctx *c);
bool wg_resolve_storage(struct wg_ctx *c);
bool wg_resolve_driver(struct wg_ctx *c);
bool wg_resolve_spin(struct wg_ctx *c);
bool wg_resolve_runtime(struct wg_ctx *c); /* resolve_runtime.c: Java, Go */
bool wg_resolve_limits(struct wg_ctx *c);
/* A collection that ran out of time, or of threads, left its threads and its record out. */
static inline bool wg_cut_short(const struct wg_process *p)
{
	for (size_t i = 0; p->stub && i < p->missing.n; i++)
		if (p->missing.v[i].what && !strcmp(p->missing.v[i].what, "threads and files"))
			return true;
	return false;
}
uint32_t wg_process_actor(struct wg_b *b, int32_t proc); /* node that acts for a process */
uint32_t wg_wakers(struct wg_b *b, int32_t proc);
uint32_t wg_wakers_but(struct wg_b *b, int32_t proc, const struct wg_thread *t); /* without t */
void wg_resolve_streams(struct wg_b *b);
void wg_resolve_collectives(struct wg_b *b);
uint32_t wg_stream_node(struct wg_b *b, int32_t proc, size_t ix);
uint32_t wg_collective_node(struct wg_b *b, int32_t proc, const struct wg_comm *c, uint64_t seq,
			    bool p2p);
bool wg_stream_pending(const struct wg_stream *s);
/* The item that holds the stream up, as an index into pending; -1 none is known. */
int wg_stream_head(struct wg_b *b, int32_t proc, const struct wg_stream *s, bool *sure);
/* How long may GPU work last before it is called stuck? True: it has lasted longer. */
enum wg_fate wg_gpu_age(struct wg_b *b, int32_t proc, const struct wg_stream *s, double age,
			enum wg_certainty *sure, const char **why);
#define WG_COMM_INIT_SEQ (~0ull)
#define WG_COMM_END_SEQ (~0ull - 1)
double wg_timeout(const struct wg_thread *t); /* WG_NO_SEC: none or unknown */
#define WG_SHORT_TIMEOUT 10.0 /* a timed wait up to here is a poll: the thread looks again */
#define WG_PATIENCE 2.0	      /* silence shorter than this is nothing yet */

/* fate.c, cycles.c */
void wg_fates(struct wg_b *b);
enum wg_fate wg_edge_fate(const struct wg_b *b, const struct wg_iedge *e);
void wg_cycles(struct wg_b *b);

/* chains.c */
struct wg_finding {
	uint32_t start;
	enum wg_fate fate;
	enum wg_class cls;
	uint32_t endnode;	     /* where it ends; in a cycle: where it closes */
	uint32_t *path;		     /* edges, from the symptom on; with a cycle, round to it */
	size_t npath, cycle_from;    /* cycle_from: index of the first edge of the cycle */
	bool cycle;
	bool certain;
	bool guessed;
	int score;		     /* contract's order: lower goes first */
	const struct wg_iend *end;
	const struct wg_iedge *by;   /* the edge whose idle class decided; NULL */
};
bool wg_find(struct wg_b *b, uint32_t start, struct wg_finding *out);
/* Who it is that does not send, read or come: where f->by leads, or who holds that one up. */
uint32_t wg_idler(const struct wg_b *b, const struct wg_finding *f);

/* verdict.c, wording.c, emit.c */
void wg_verdict(struct wg_b *b);
void wg_word(struct wg_b *b, const struct wg_finding *f, const struct wg_failure *oom,
	     const struct wg_file *log);
void wg_emit(struct wg_b *b);
const char *wg_name_process(struct wg_b *b, int32_t proc);
const char *wg_name_thread(struct wg_b *b, uint32_t node);
const char *wg_name_node(struct wg_b *b, uint32_t node);
const char *wg_phase(struct wg_b *b, int32_t proc);

#endif
