/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph.h - facts -> graph -> verdict. Pure functions: no I/O, no clock, no
 * environment; the same facts give the same graph, byte for byte.
 */
#ifndef WG_GRAPH_H
#define WG_GRAPH_H

#include "../facts.h"

enum wg_node_kind { WG_NODE_THREAD, WG_NODE_LOCK, WG_NODE_EVENT, WG_NODE_STREAM,
		    WG_NODE_COLLECTIVE, WG_NODE_FILE, WG_NODE_PIPE, WG_NODE_SOCKET,
		    WG_NODE_PROCESS, WG_NODE_FILE_LOCK, WG_NODE_GIL };
enum wg_edge_kind { WG_EDGE_WAITS_FOR, WG_EDGE_HELD_BY, WG_EDGE_ENQUEUED_ON, WG_EDGE_RUNS,
		    WG_EDGE_WRITTEN_BY, WG_EDGE_READ_BY, WG_EDGE_MEMBER, WG_EDGE_CHILD_OF,
		    WG_EDGE_WOKEN_BY };
extern const char *const wg_node_kind_names[]; /* the contract's strings */
extern const char *const wg_edge_kind_names[];

struct wg_node {
	const char *id; /* "t:PID:TID", "l:PID:0xADDR", ... unique and stable between runs */
	enum wg_node_kind kind;
	const char *label;
	const struct wg_process *process; /* or NULL */
	const struct wg_thread *thread;	  /* or NULL */
};
struct wg_edge {
	uint32_t from, to; /* indices into nodes */
	enum wg_edge_kind kind;
	double since_s;	   /* WG_NO_SEC unknown */
	const char *evidence;
	bool certain;
	uint32_t step;	   /* its place in the verdict's chain, from 1; 0: not in it */
};

enum wg_hung { WG_HUNG_NO, WG_HUNG_YES, WG_HUNG_NULL };
enum wg_confidence { WG_CONF_CERTAIN, WG_CONF_LIKELY, WG_CONF_GUESS };

struct wg_culprit {
	bool present;
	int64_t pid, tid, rank; /* WG_NO_INT unknown */
	const char *thread_name, *comm, *what;
};
struct wg_verdict {
	const char *class_name; /* the contract's string */
	enum wg_hung hung;
	enum wg_confidence confidence;
	const char *summary, *phase, *advice; /* phase NULL unknown */
	WG_VEC(const char *) not_established;
	struct wg_culprit culprit;
	WG_VEC(const char *) chain;
};

/* How the graph reads one thread's wait, for the `wait` object of the snapshot and the text. */
struct wg_wait_view {
	const struct wg_thread *thread;
	const char *kind;   /* the contract's wait.kind; NULL: not waiting */
	const char *object; /* "mutex 0x…", "pipe:[123]", "stream 0x…"; NULL */
	const char *call;   /* the recorded call or system call that blocks */
	double since_s;
	bool bystander;	    /* idle by design: pool worker, timer, event loop, driver helper */
};

struct wg_graph {
	struct wg_arena *arena;
	const struct wg_facts *facts;
	WG_VEC(struct wg_node) nodes;
	WG_VEC(struct wg_edge) edges;
	WG_VEC(struct wg_wait_view) waits; /* one for every thread of every process, in facts order */
	struct wg_verdict verdict;
};

struct wg_graph *wg_graph_build(const struct wg_facts *f); /* never NULL; free before the facts */
void wg_graph_free(struct wg_graph *g);

#endif
