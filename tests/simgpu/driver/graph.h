/* SPDX-License-Identifier: Apache-2.0 */
/* graph.h - what graph.c (graphs and their execution) and capture.c share. */
#ifndef SIMGPU_GRAPH_H
#define SIMGPU_GRAPH_H

#include "sim.h"

#define GRAPH_MAGIC 0x47524148u
#define NODE_MAGIC 0x4e4f4445u
#define EXEC_MAGIC 0x45584543u

struct sg_node_set {
	struct sg_node **v;
	size_t n, room;
};

struct sg_node {
	uint32_t magic;
	struct sg_graph *graph;
	CUgraphNodeType type;
	struct sg_op op;
	struct sg_node_set deps;
	bool disabled;
	size_t index;		      /* scratch of an instantiation */
	struct sg_node *copy;	      /* scratch of a clone */
	const struct sg_node *origin; /* in a clone */
};

struct sg_user_object {
	void *ptr;
	CUhostFn destroy;
	_Atomic int refs;
};

/* Memory of allocation nodes: as long as a graph or an executable of it lives. */
struct sg_graph_memory {
	int refs;
	uint64_t *addr;
	size_t n;
};

struct sg_graph {
	uint32_t magic;
	struct sg_node_set nodes;
	struct sg_user_object **objects;
	size_t object_count;
	struct sg_graph_memory *memory;
};

struct sg_capture {
	uint64_t id;
	CUstreamCaptureMode mode;
	struct sg_stream *origin;
	struct sg_graph *graph;
	pthread_t thread;
	bool given; /* the graph is the caller's */
	bool broken, ended;
	struct sg_capture *next; /* of those that are under way */
};

/* All locked. */
bool sg_set_add(struct sg_node_set *s, struct sg_node *n);
void sg_set_clear(struct sg_node_set *s);
struct sg_graph *sg_graph_new(void);
void sg_graph_free(struct sg_graph *g);
struct sg_node *sg_node_new(struct sg_graph *g, CUgraphNodeType type, const struct sg_op *op);
struct sg_graph *sg_graph_of(CUgraph h);
struct sg_node *sg_node_of(CUgraphNode h);

#endif
