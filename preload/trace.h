/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - format of the trace file, shared by its writer (preload/) and its
 * readers (tools/memory/). docs/trace-format.md explains it with pictures.
 *
 * One file a process: WAITGRAPH_DIR/HOST-PID-START.trace, mode 0600. A header, then
 * chunks of equal size, each mapped by the writer while it is written to. Everything
 * is in the page cache the moment it is stored, and each chunk says how far it is
 * whole (`used`, stored last), so SIGKILL at any point leaves a readable file.
 *
 * Five kinds of chunk. EVENTS is the detail over time and may be recycled when the
 * file has reached its size (`folded_until` then says from when on it is whole); the
 * other four are never dropped: DEFS (stacks, names, objects, failures), SITES
 * (counters of each call site), LIVE (every allocation that is alive now) and
 * TIMELINE (levels over the whole life of the process, coarser as it gets longer).
 *
 * A reader trusts nothing: every offset, count and index is checked against the
 * file's real size, strings end where their field ends.
 *
 * Times are ticks of header.clock unless said otherwise. Integers are little-endian.
 * Compatibility: a reader takes any file with min_version <= its version. New
 * records get new tags and new values go to the end of a record; entries grow at
 * their end (their sizes stand in the header). None of that raises min_version.
 */
#ifndef WG_TRACE_H
#define WG_TRACE_H

#include <stdint.h>

#include "recorder.h"

#define WGTR_MAGIC "WGTRACE\x1a" /* 8 bytes without the final NUL */
#define WGTR_VERSION 1
#define WGTR_MIN_VERSION 1
#define WGTR_ENDIAN 0x01020304u
#define WGTR_HEADER_SIZE 16384u
#define WGTR_DEVICES_AT 4096u
#define WGTR_DEVICES 32
#define WGTR_WRITERS 16	   /* independent streams of events; a thread writes to one at a time */
#define WGTR_FRAMES 64	   /* of one stack, innermost first */
#define WGTR_PYFRAMES 24
#define WGTR_UNKNOWN UINT64_MAX

enum wgtr_chunk_kind {
	WGTR_EVENTS = 1,
	WGTR_DEFS,
	WGTR_SITES,
	WGTR_LIVE,
	WGTR_TIMELINE,
	WGTR_CHUNK_KINDS
};

#define WGTR_CHUNK_MAGIC 0x4b434757u /* "WGCK" */

struct wgtr_chunk { /* at the start of every chunk */
	uint32_t magic;	  /* 0: reserved and not in use (yet, or being recycled) */
	uint16_t kind;
	uint16_t stream;  /* EVENTS: the writer; TIMELINE: the device */
	uint32_t ordinal; /* which one of its kind (and stream), from 0; SITES and LIVE: its place */
	uint32_t used;	  /* EVENTS, DEFS: bytes after this header that are whole.
			   * TIMELINE: half << 31 | complete buckets in that half */
	uint64_t first, last; /* EVENTS: ticks of the first and last record */
	uint64_t events;  /* EVENTS: records in here. TIMELINE: ticks a bucket spans */
	uint64_t lost;	  /* EVENTS: records not written by this writer while this was current */
	uint64_t pad[2];
};

struct wgtr_device {
	uint32_t valid;
	int32_t ordinal;
	uint8_t uuid[16];
	char name[48];
	char pci[16];
	uint64_t total;		/* WGTR_UNKNOWN */
	uint64_t free, free_at; /* last sample */
	uint64_t least_free, least_free_at;
	uint64_t own, peak, peak_at; /* device memory held through recorded allocations */
	uint64_t context;	/* measured cost of contexts and modules; WGTR_UNKNOWN */
	uint64_t allocs, frees, failures;
	uint64_t async_live, pool_reserved; /* stream-ordered: handed out, held by pools */
	uint64_t managed, managed_peak;	    /* not part of own: its pages wander */
	uint64_t vmm_created, vmm_mapped;   /* physical handles, and what of them is mapped */
	uint64_t va_reserved;
	uint64_t peak_snapshot_at; /* when wgtr_site.at_peak was taken; 0 never */
	uint64_t imported;	/* opened from another process: not ours */
	uint64_t first_free, first_free_at, first_own; /* at the first sample */
	uint64_t free_own;	/* own when `free` was sampled */
};

struct wgtr_header {
	char magic[8];
	uint32_t version, min_version;
	uint32_t endian;
	uint32_t header_size;
	uint32_t chunk_size, chunk_header_size;
	uint32_t site_size, live_size, bucket_size, device_size; /* of the entries below */
	uint32_t devices_offset, ndevices; /* array of struct wgtr_device, by ordinal */
	uint32_t time_shift; /* compact records count time in units of 1 << time_shift ticks */
	uint32_t pid;
	uint64_t start_ticks; /* field 22 of /proc/self/stat */
	uint64_t pidns;
	char boot_id[40];
	char host[64];
	struct wgrec_clock clock;
	int32_t rank, world, local_rank; /* -1 unknown */
	char rank_source[24];
	uint32_t page_size;
	uint64_t opened;  /* ticks */
	uint64_t ended;	  /* ticks of the normal end; 0: still running, or killed */
	uint64_t touched; /* ticks: last round of the helper thread */
	uint64_t chunks;  /* laid out so far; the file may be longer by some that are not in use */
	uint64_t lost;	  /* events that no chunk could take */
	uint64_t folded_until;	/* EVENTS up to here are incomplete: recycled. 0: all there */
	uint64_t folded_events; /* how many records went with them */
	uint64_t trace_max;
	uint64_t host_live, host_peak, host_peak_at; /* pinned host memory */
	uint64_t sites, live_slots; /* entries laid out */
	char command[512]; /* argv joined by spaces, cut */
	char exe[256];
	uint64_t age_ns; /* of the process when the trace was opened; 0 not known */
};

struct wgtr_site { /* SITES: entry i of the chunk with ordinal o is site o * per_chunk + i */
	uint32_t stack;	  /* id of a STACK definition; 0 none */
	uint16_t fn;	  /* id of a NAME definition */
	int16_t device;	  /* -1 unknown or none */
	uint8_t kind;	  /* enum wg_mem_kind + 1; 0: entry not in use (stored last) */
	uint8_t pad[3];
	uint32_t pad2;
	uint64_t allocs, frees;
	uint64_t live;	  /* bytes alive */
	uint64_t at_peak; /* bytes alive when the device's peak was last looked at, see device */
	uint64_t first;	  /* ticks */
	uint64_t total;	  /* bytes allocated so far */
};

struct wgtr_live { /* LIVE: an allocation that is alive */
	uint64_t addr;	 /* or handle */
	uint64_t size;
	uint64_t at;	 /* ticks of the allocation */
	uint64_t handle; /* VMM_MAP: of the physical memory */
	uint32_t site;
	uint32_t state;	 /* 0 free, 1 alive, 2 handle given back but still mapped; stored last */
	uint64_t mapped; /* VMM: bytes of it that are mapped */
};

struct wgtr_bucket { /* TIMELINE: levels of one device over a stretch of time */
	uint64_t from;	    /* ticks */
	uint64_t own_max, own_last;
	uint64_t free_min, free_last; /* WGTR_UNKNOWN: not sampled in here */
	uint32_t allocs, frees;
};

/*
 * EVENTS: a stream of records. The state that it refers to starts empty in every chunk
 * (last time = chunk.first >> time_shift, tid 0, caches empty), so each chunk can be read
 * alone. "varint" is LEB128; "zigzag" maps signed to unsigned.
 *
 * Compact record: bit 7 of the tag set.
 *   tag   1 F A S T nnn   F: 0 allocation, 1 free   nnn: bytes of time that follow
 *   time  nnn bytes, little-endian: units since the record before
 *   tid   if T: varint, the thread from here on
 *   addr  if A: one byte, an index into the address cache. Else varint: v << 1 | 1 when 512 * v
 *         is the distance from the address before, else v << 1 (65 bits), v zigzag
 *   shape if S: with A nothing, the shape is the cached one of that address; without A one byte,
 *         an index into the shape cache. Else varint site, varint size (as (v << 1 | 1) when
 *         the size is v << 9, else v << 1)
 * Afterwards address and shape are (again) in their caches, at wgtr_slot(). The "address
 * before" is that of every compact record.
 *
 * Other record: tag (1..127), head byte 0 0 0 0 T nnn, time, tid as above, one byte n,
 * then n varints. Readers skip tags that they do not know.
 */
#define WGTR_CACHE 256
static inline uint32_t wgtr_slot(uint64_t v) /* of an address, or of a site and size mixed */
{
	return (uint32_t)((v * 0x9e3779b97f4a7c15ull) >> 56);
}
static inline uint64_t wgtr_shape(uint32_t site, uint64_t size)
{
	return size * 31 + site;
}
#define WGTR_COMPACT 0x80u
#define WGTR_C_FREE 0x40u
#define WGTR_C_ADDR 0x20u
#define WGTR_C_SHAPE 0x10u
#define WGTR_C_TID 0x08u
#define WGTR_RECORD_MAX 256 /* bytes; no record is longer */

enum wgtr_event { /* values, in order */
	WGTR_E_SAMPLE = 1, /* device, free, own, total */
	WGTR_E_WAIT,	   /* fn, device + 1, stream, began (ticks), duration (ticks), site */
	WGTR_E_COLLECTIVE, /* communicator (STRING id), rank + 1, sequence, fn, count, type */
	WGTR_E_MODULE,	   /* fn, device + 1, bytes (0 unknown), site */
	WGTR_E_UNFREE,	   /* addr, site, size: the free before did not happen */
	WGTR_E_GONE,	   /* device: all its allocations went with the context */
	WGTR_E_MAP,	   /* addr, size, handle, site */
	WGTR_E_UNMAP,	   /* addr, size */
	WGTR_E_POOL,	   /* device, pool, reserved now */
	WGTR_E_FAILURE,	   /* number of the FAILURE definition, 0 not kept; device + 1, asked, kind */
	WGTR_E_LOST,	   /* how many records of this writer are missing here */
	WGTR_E_RELEASE,	   /* handle: given back while still mapped (its memory goes with the map) */
};

/*
 * DEFS: [u8 tag][u24 length][payload]. Values are varints unless said otherwise; "bytes" is
 * a varint length and that many bytes. Readers skip tags that they do not know.
 */
enum wgtr_def {
	WGTR_D_STACK = 1, /* id, n, first address, then zigzag differences */
	WGTR_D_NAME,	  /* fn, bytes name */
	WGTR_D_STRING,	  /* id, bytes */
	WGTR_D_THREAD,	  /* tid, bytes name, at */
	WGTR_D_OBJECT,	  /* at, start, end, file offset, inode, bytes build id, bytes path */
	WGTR_D_FAILURE,	  /* number, at, tid, device + 1, fn, kind, error, asked, free + 1 (0 unknown),
			   * total + 1, pieces, own, va_reserved, host_live, bytes thread name,
			   * n frames, frames, n Python frames, each: line, bytes function, bytes file */
	WGTR_D_OUTCOME,	  /* number, at, recovered (as in wgrec_failure), asked, free + 1, pieces,
			   * repeats: what became of it; the last one counts */
	WGTR_D_NOTE,	  /* bytes: where the writer stepped aside */
	WGTR_D_PYTHON,	  /* site, n, each: line, bytes function, bytes file: the Python frames when
			   * that site was seen for the first time (later ones may differ) */
};
#define WGTR_DEF_MAX 12288 /* payload bytes; no definition is longer */
#define WGTR_FAILURES 1024 /* definitions kept; later ones are only counted */

/* What version 1 began with: a reader takes entries of at least this size. */
#define WGTR_CHUNK_MIN 64
#define WGTR_SITE_MIN 64
#define WGTR_LIVE_MIN 48
#define WGTR_BUCKET_MIN 48
#define WGTR_DEVICE_MIN 288
#define WGTR_HEADER_MIN 1128

_Static_assert(sizeof(struct wgtr_chunk) == 64, "chunk");
_Static_assert(sizeof(struct wgtr_site) == 64, "site");
_Static_assert(sizeof(struct wgtr_live) == 48, "live");
_Static_assert(sizeof(struct wgtr_bucket) == 48, "bucket");
_Static_assert(sizeof(struct wgtr_device) % 8 == 0, "device");
_Static_assert(sizeof(struct wgtr_header) <= WGTR_DEVICES_AT, "header");
_Static_assert(WGTR_DEVICES_AT + WGTR_DEVICES * sizeof(struct wgtr_device) <= WGTR_HEADER_SIZE,
	       "devices");

#endif
