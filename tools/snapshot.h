/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot.h - facts to JSON and back: schema waitgraph/1 as the contract has it,
 * plus keys of our own for every fact that the contract does not name, so that a
 * saved snapshot gives the same verdict as the live process did.
 */
#ifndef WG_SNAPSHOT_H
#define WG_SNAPSHOT_H

#include <jansson.h>

#include "facts.h"
#include "graph/graph.h"

json_t *wg_snapshot_json(const struct wg_graph *g); /* a new reference */

/*
 * Add what stands in a snapshot file to f: its processes come as from_snapshot.
 * The file is untrusted. 0, -ENOENT, -EACCES, -EINVAL (not ours or corrupt; *why says
 * what and where, allocated in f's arena), -EPROTO (a newer schema).
 */
int wg_snapshot_read(struct wg_facts *f, const char *path, const char **why);
int wg_snapshot_parse(struct wg_facts *f, const char *text, size_t n, const char **why);

/*
 * What `why DIR | FILE...` reads: files are snapshots (.json) or traces, directories are
 * searched (not recursively) for both. The newest snapshot of each process counts; a process
 * known only by its trace or by its peers' snapshots comes as trace_only. Processes of this
 * host and boot are looked up: alive or not. No live process is asked for more. Corrupt files
 * among several in a directory are named in f->missing and skipped; a named one fails.
 * 0; -ENOENT (nothing there), -EACCES, -EINVAL, -EPROTO with *why.
 */
int wg_snapshot_load(struct wg_facts *f, const char *const *paths, size_t n, const char **why);

#endif
