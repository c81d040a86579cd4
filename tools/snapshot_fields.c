/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot_fields.c - the table of facts and the two loops over it (see snapshot_fields.h). */
#include "snapshot_fields.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEX_BYTES 1024 /* code around a few addresses */

/* ---- the table ---------------------------------------------------------------- */

#define FIELD(s, key, m, t, a) { key, offsetof(struct s, m), sizeof(((struct s *)0)->m), WG_F_##t, WG_A_##a, NULL, NULL, 0, #m }
#define ENUM(s, key, m, n, a) { key, offsetof(struct s, m), sizeof(((struct s *)0)->m), WG_F_ENUM, WG_A_##a, NULL, n, 0, #m }
#define SUB(s, key, m, t, d) { key, offsetof(struct s, m), sizeof(((struct s *)0)->m), WG_F_##t, WG_A_ZERO, &d, NULL, 0, #m }
#define LIST(s, key, m, d) { key, offsetof(struct s, m), sizeof(((struct s *)0)->m), WG_F_VEC, WG_A_NONE, &d, NULL, 0, #m }
#define SKIP(s, m) { #m, offsetof(struct s, m), sizeof(((struct s *)0)->m), WG_F_SKIP, WG_A_ZERO, NULL, NULL, 0, #m }
#define BYTES(s, key, m, len) { key, offsetof(struct s, m), sizeof(((struct s *)0)->m), WG_F_BYTES, WG_A_ZERO, NULL, NULL, offsetof(struct s, len), #m }
#define DESC(var, s, f) const struct wg_desc var = { #s, sizeof(struct s), f, sizeof(f) / sizeof((f)[0]) }

static const char *const certainty_names[] = { "certain", "likely", "guess", NULL };
static const char *const call_kinds[] = { "other", "sync", "copy", "launch", "alloc", "free", "pin",
					  "module", "context", "multicast", "collective", "comm",
					  NULL };
static const char *const op_names[] = { "unknown", "running", "futex", "read", "write", "sync",
					"poll", "epoll", "accept", "connect", "wait", "flock",
					"fcntl", "sleep", "sigwait", "open", "fsmeta", "ioctl",
					"iouring", "sysv", "fault", "splice", "other", NULL };
static const char *const file_kinds[] = { "other", "file", "dir", "pipe", "fifo", "socket", "tty",
					  "char", "block", "eventfd", "epoll", "inotify", "timerfd",
					  "signalfd", "pidfd", "memfd", "uring", NULL };
static const char *const sock_states[] = { "unknown", "listen", "connecting", "connected",
					   "closing", "closed", "unconnected", NULL };
static const char *const gpu_ops[] = { "other", "kernel", "copy", "set", "graph", "host-function",
				       "wait-event", "record-event", "wait-value", "write-value",
				       "collective", "alloc", "free", "mark", NULL };
static const char *const coll_states[] = { "enqueued", "running", "done", NULL };

_Static_assert(sizeof(call_kinds) / sizeof(call_kinds[0]) == WG_CALL_COMM + 2, "call kinds");
_Static_assert(sizeof(op_names) / sizeof(op_names[0]) == WG_OP_OTHER + 2, "ops");
_Static_assert(sizeof(file_kinds) / sizeof(file_kinds[0]) == WG_FILE_URING + 2, "file kinds");
_Static_assert(sizeof(sock_states) / sizeof(sock_states[0]) == WG_SOCK_UNCONNECTED + 2, "sockets");
_Static_assert(sizeof(gpu_ops) / sizeof(gpu_ops[0]) == WG_GPU_MARK + 2, "GPU ops");

static const struct wg_field missing_f[] = {
	FIELD(wg_missing, "what", what, STR, ZERO),
	FIELD(wg_missing, "why", why, STR, ZERO),
	FIELD(wg_missing, "remedy", remedy, STR, ZERO),
};
DESC(wg_desc_missing, wg_missing, missing_f);

static const struct wg_field frame_f[] = {
	FIELD(wg_frame, "module", module, STR, ZERO),
	FIELD(wg_frame, "symbol", symbol, STR, ZERO),
	FIELD(wg_frame, "offset", offset, U64, NONE),
	FIELD(wg_frame, "file", file, STR, ZERO),
	FIELD(wg_frame, "line", line, I64, NO),
	FIELD(wg_frame, "pc", pc, HEX, ZERO),
	ENUM(wg_frame, "certainty", certainty, certainty_names, ZERO),
	FIELD(wg_frame, "inlined", inlined, BOOL, ZERO),
};
static DESC(frame_d, wg_frame, frame_f);

static const struct wg_field pyframe_f[] = {
	FIELD(wg_pyframe, "function", function, STR, ZERO),
	FIELD(wg_pyframe, "file", file, STR, ZERO),
	FIELD(wg_pyframe, "line", line, I64, NO),
};
static DESC(pyframe_d, wg_pyframe, pyframe_f);

static const struct wg_field arg_f[] = {
	FIELD(wg_arg, "name", name, STR, ZERO),
	FIELD(wg_arg, "text", text, STR, ZERO),
	FIELD(wg_arg, "value", value, HEX, NONE),
};
static DESC(arg_d, wg_arg, arg_f);

static const struct wg_field call_f[] = {
	FIELD(wg_call, "function", function, STR, ZERO),
	FIELD(wg_call, "inner", inner, STR, ZERO),
	ENUM(wg_call, "kind", kind, call_kinds, ZERO),
	FIELD(wg_call, "since_s", since_s, SEC, NO),
	FIELD(wg_call, "device", device, I64, NO),
	FIELD(wg_call, "stream", stream, HEX, ZERO),
	FIELD(wg_call, "has_stream", has_stream, BOOL, ZERO),
	FIELD(wg_call, "object", object, HEX, ZERO),
	FIELD(wg_call, "sp", sp, HEX, ZERO),
	FIELD(wg_call, "fp", fp, HEX, ZERO),
	FIELD(wg_call, "ra", ra, HEX, ZERO),
	SUB(wg_call, "args", args, VEC, arg_d),
	FIELD(wg_call, "event_known", event_known, BOOL, ZERO),
	FIELD(wg_call, "event_recorded", event_recorded, BOOL, ZERO),
	FIELD(wg_call, "event_remote", event_remote, BOOL, ZERO),
	FIELD(wg_call, "event_stream", event_stream, HEX, ZERO),
	FIELD(wg_call, "event_seq", event_seq, U64, ZERO),
	FIELD(wg_call, "event_device", event_device, I64, NO),
	FIELD(wg_call, "event_stream_ix", event_stream_ix, I64, NO),
};
DESC(wg_desc_call, wg_call, call_f);

static const struct wg_field futex_f[] = {
	FIELD(wg_futex, "addr", addr, HEX, ZERO),
	FIELD(wg_futex, "op", op, I32, ZERO),
	FIELD(wg_futex, "val", val, U32, ZERO),
	FIELD(wg_futex, "words", words, U32A, ZERO),
	FIELD(wg_futex, "back", back, I32A, ZERO),
	FIELD(wg_futex, "nwords", nwords, I32, ZERO),
	FIELD(wg_futex, "back_valid", back_valid, BOOL, ZERO),
	FIELD(wg_futex, "shared", is_shared, BOOL, ZERO),
	FIELD(wg_futex, "has_map", has_map, BOOL, ZERO),
	FIELD(wg_futex, "map_dev", map_dev, HEX, ZERO),
	FIELD(wg_futex, "map_ino", map_ino, U64, ZERO),
	FIELD(wg_futex, "map_off", map_off, HEX, ZERO),
	FIELD(wg_futex, "map_path", map_path, STR, ZERO),
	FIELD(wg_futex, "nwaitv", nwaitv, I32, ZERO),
};
static DESC(futex_d, wg_futex, futex_f);

static const struct wg_field pollfd_f[] = {
	FIELD(wg_pollfd, "fd", fd, I32, NONE),
	FIELD(wg_pollfd, "events", events, I16, NONE),
};
static DESC(pollfd_d, wg_pollfd, pollfd_f);

static const struct wg_field wait_f[] = {
	ENUM(wg_wait, "op", op, op_names, NONE),
	FIELD(wg_wait, "nr", nr, I64, NO),
	FIELD(wg_wait, "syscall", syscall_name, STR, ZERO),
	FIELD(wg_wait, "args", args, HEXA, ZERO),
	FIELD(wg_wait, "has_args", has_args, BOOL, ZERO),
	FIELD(wg_wait, "since_s", since_s, SEC, NO),
	FIELD(wg_wait, "timeout_s", timeout_s, SEC, NO),
	FIELD(wg_wait, "timeout_known", timeout_known, BOOL, ZERO),
	SUB(wg_wait, "futex", futex, OBJ, futex_d),
	FIELD(wg_wait, "fd", fd, I64, NO),
	FIELD(wg_wait, "bytes", bytes, I64, NO),
	SUB(wg_wait, "fds", fds, VEC, pollfd_d),
	FIELD(wg_wait, "child", child, I64, NO),
	FIELD(wg_wait, "path", path, STR, ZERO),
	FIELD(wg_wait, "key", key, I64, NO),
	FIELD(wg_wait, "fs_type", fs_type, STR, ZERO),
	FIELD(wg_wait, "fs_mount", fs_mount, STR, ZERO),
	FIELD(wg_wait, "fs_daemon_pid", fs_daemon_pid, I32, ZERO),
	FIELD(wg_wait, "remote_fs", remote_fs, BOOL, ZERO),
	FIELD(wg_wait, "ipc_known", ipc_known, BOOL, ZERO),
	FIELD(wg_wait, "ipc_last_alive", ipc_last_alive, BOOL, ZERO),
	FIELD(wg_wait, "ipc_last", ipc_last, I32, ZERO),
	FIELD(wg_wait, "ipc_num", ipc_num, I64, NO),
	FIELD(wg_wait, "ipc_value", ipc_value, I64, NO),
	FIELD(wg_wait, "sharers", sharers, I32S, ZERO),
	FIELD(wg_wait, "sharers_known", sharers_known, BOOL, ZERO),
	FIELD(wg_wait, "no_handler", no_handler, BOOL, ZERO),
	FIELD(wg_wait, "fs_daemon_gone", fs_daemon_gone, BOOL, ZERO),
};
static DESC(wait_d, wg_wait, wait_f);

static const char *const own_memory_names[] = { "unknown", "same", "changed", NULL };
static const char *const round_names[] = { "unknown", "same", "changes", NULL };

static const struct wg_field polled_f[] = {
	FIELD(wg_polled, "address", addr, HEX, NONE),
	FIELD(wg_polled, "value", value, HEX, NONE),
	FIELD(wg_polled, "size", size, U32, NONE),
	FIELD(wg_polled, "stack", stack, BOOL, ZERO),
	FIELD(wg_polled, "map_dev", map_dev, HEX, ZERO),
	FIELD(wg_polled, "map_ino", map_ino, U64, ZERO),
	FIELD(wg_polled, "map_off", map_off, HEX, ZERO),
	FIELD(wg_polled, "map_path", map_path, STR, ZERO),
};
static DESC(polled_d, wg_polled, polled_f);

static const struct wg_field thread_f[] = {
	SKIP(wg_thread, pid), /* the process' */
	FIELD(wg_thread, "tid", tid, I32, NONE),
	FIELD(wg_thread, "ns_tid", ns_tid, I32, ZERO),
	FIELD(wg_thread, "name", name, STR, ZERO),
	FIELD(wg_thread, "state", state, CHAR, ZERO),
	FIELD(wg_thread, "cpu_s", cpu_s, SEC, NO),
	FIELD(wg_thread, "cpu_share", cpu_share, SEC, NO),
	FIELD(wg_thread, "user_share", user_share, SEC, NO),
	FIELD(wg_thread, "sys_share", sys_share, SEC, NO),
	FIELD(wg_thread, "last_ran_s", last_ran_s, SEC, NO),
	FIELD(wg_thread, "switches", switches, I64, NO),
	FIELD(wg_thread, "same_place", same_place, BOOL, ZERO),
	FIELD(wg_thread, "sampled_twice", sampled_twice, BOOL, ZERO),
	FIELD(wg_thread, "start_age_s", start_age_s, SEC, NO),
	FIELD(wg_thread, "sp", sp, HEX, ZERO),
	FIELD(wg_thread, "pc", pc, HEX, ZERO),
	FIELD(wg_thread, "fsbase", fsbase, HEX, ZERO),
	SUB(wg_thread, "blocked", wait, OBJ, wait_d),
	FIELD(wg_thread, "wchan", wchan, STR, ZERO),
	SUB(wg_thread, "calls", calls, VEC, wg_desc_call),
	LIST(wg_thread, "native_stack", native_stack, frame_d),
	ENUM(wg_thread, "native_certainty", native_certainty, certainty_names, ZERO),
	FIELD(wg_thread, "native_complete", native_complete, BOOL, ZERO),
	LIST(wg_thread, "python_stack", python_stack, pyframe_d),
	FIELD(wg_thread, "kernel_stack", kernel_stack, STRS, NONE),
	FIELD(wg_thread, "has_python", has_python, BOOL, ZERO),
	FIELD(wg_thread, "py_main", py_main, BOOL, ZERO),
	FIELD(wg_thread, "waker_pid", waker_pid, I32, ZERO),
	FIELD(wg_thread, "waker_tid", waker_tid, I32, ZERO),
	FIELD(wg_thread, "waker_count", waker_count, I64, NO),
	FIELD(wg_thread, "waker_age_s", waker_age_s, SEC, NO),
	FIELD(wg_thread, "waker_is_timer", waker_is_timer, BOOL, ZERO),
	FIELD(wg_thread, "fds_at_hand", fds_at_hand, I32S, ZERO),
	FIELD(wg_thread, "sample_pc", sample_pc, HEXA, ZERO),
	FIELD(wg_thread, "repeat_syscall", repeat_syscall, STR, ZERO),
	FIELD(wg_thread, "repeat_path", repeat_path, STR, ZERO),
	FIELD(wg_thread, "repeat_fd", repeat_fd, I64, NO),
	FIELD(wg_thread, "sigmask", sigmask, STR, ZERO),
	FIELD(wg_thread, "ours", ours, BOOL, ZERO),
	FIELD(wg_thread, "repeat_errno", repeat_errno, I64, NO),
	FIELD(wg_thread, "repeat_exists", repeat_exists, I64, NO),
	FIELD(wg_thread, "repeat_dev", repeat_dev, U64, ZERO),
	FIELD(wg_thread, "repeat_ino", repeat_ino, U64, ZERO),
	FIELD(wg_thread, "repeat_file_age_s", repeat_file_age_s, SEC, NO),
	BYTES(wg_thread, "code", code, code_len),
	SKIP(wg_thread, code_len), /* with code */
	FIELD(wg_thread, "code_at", code_at, HEX, ZERO),
	FIELD(wg_thread, "between_unseen", between_unseen, BOOL, ZERO),
	FIELD(wg_thread, "ready_twice", ready_twice, BOOL, ZERO),
	ENUM(wg_thread, "own_memory", own_memory, own_memory_names, ZERO),
	ENUM(wg_thread, "round", round, round_names, ZERO),
	FIELD(wg_thread, "round_insns", round_insns, U32, ZERO),
	FIELD(wg_thread, "round_reads", round_reads, U32, ZERO),
	FIELD(wg_thread, "round_clock", round_clock, BOOL, ZERO),
	FIELD(wg_thread, "round_fixed_reads", round_fixed_reads, BOOL, ZERO),
	FIELD(wg_thread, "polled_changed", polled_changed, BOOL, ZERO),
	FIELD(wg_thread, "polled_for_s", polled_for_s, SEC, NO),
	SUB(wg_thread, "polled", polled, VEC, polled_d),
};
DESC(wg_desc_thread, wg_thread, thread_f);

static const struct wg_field file_f[] = {
	FIELD(wg_file, "fd", fd, I32, NONE),
	FIELD(wg_file, "path", path, STR, ZERO),
	ENUM(wg_file, "type", kind, file_kinds, NONE), /* `kind` is the contract's coarser word */
	FIELD(wg_file, "flags", flags, I64, NO),
	FIELD(wg_file, "pos", pos, I64, NO),
	FIELD(wg_file, "size", size, I64, NO),
	FIELD(wg_file, "dev", dev, HEX, ZERO),
	FIELD(wg_file, "ino", ino, U64, ZERO),
	FIELD(wg_file, "deleted", deleted, BOOL, ZERO),
	FIELD(wg_file, "fs_type", fs_type, STR, ZERO),
	FIELD(wg_file, "fs_daemon_pid", fs_daemon_pid, I32, ZERO),
	FIELD(wg_file, "written_bytes", written_bytes, I64, NO),
	FIELD(wg_file, "last_write_age_s", last_write_age_s, SEC, NO),
	FIELD(wg_file, "user_buffered_bytes", user_buffered_bytes, I64, NO),
	FIELD(wg_file, "user_buffer_owner", user_buffer_owner, STR, ZERO),
	FIELD(wg_file, "dirty_bytes", dirty_bytes, I64, NO),
	FIELD(wg_file, "writeback_bytes", writeback_bytes, I64, NO),
	FIELD(wg_file, "write_error", write_error, I64, NO),
	FIELD(wg_file, "size_delta", size_delta, I64, NO),
	FIELD(wg_file, "pipe_fill", pipe_fill, I64, NO),
	FIELD(wg_file, "pipe_size", pipe_size, I64, NO),
	FIELD(wg_file, "sock_family", sock_family, I32, ZERO),
	FIELD(wg_file, "sock_type", sock_type, I32, ZERO),
	ENUM(wg_file, "sock_state", sock_state, sock_states, ZERO),
	FIELD(wg_file, "sock_local", sock_local, STR, ZERO),
	FIELD(wg_file, "sock_remote", sock_remote, STR, ZERO),
	FIELD(wg_file, "sock_peer_ino", sock_peer_ino, U64, ZERO),
	FIELD(wg_file, "sock_rxq", sock_rxq, I64, NO),
	FIELD(wg_file, "sock_txq", sock_txq, I64, NO),
	FIELD(wg_file, "sock_backlog", sock_backlog, I64, NO),
	FIELD(wg_file, "sock_shutdown", sock_shutdown, I64, NO),
	FIELD(wg_file, "event_count", event_count, I64, NO),
	FIELD(wg_file, "timer_left_s", timer_left_s, SEC, NO),
	FIELD(wg_file, "pidfd_pid", pidfd_pid, I32, ZERO),
	SUB(wg_file, "epoll", epoll, VEC, pollfd_d),
	FIELD(wg_file, "pty_index", pty_index, I32, M1),
	FIELD(wg_file, "fs_mount", fs_mount, STR, ZERO),
	FIELD(wg_file, "fs_source", fs_source, STR, ZERO),
	FIELD(wg_file, "lock_kind", lock_kind, CHAR, ZERO),
	FIELD(wg_file, "remote_fs", remote_fs, BOOL, ZERO),
	FIELD(wg_file, "sock_rcv_timeout_s", sock_rcv_timeout_s, SEC, NO),
	FIELD(wg_file, "sock_snd_timeout_s", sock_snd_timeout_s, SEC, NO),
	FIELD(wg_file, "sock_role", sock_role, I32, ZERO),
	FIELD(wg_file, "sock_sent_bytes", sock_sent_bytes, I64, NO),
	FIELD(wg_file, "sock_recv_bytes", sock_recv_bytes, I64, NO),
	FIELD(wg_file, "sock_sent_age_s", sock_sent_age_s, SEC, NO),
	FIELD(wg_file, "sock_recv_age_s", sock_recv_age_s, SEC, NO),
	FIELD(wg_file, "user_buffered_delta", user_buffered_delta, I64, NO),
	FIELD(wg_file, "quiet_s", quiet_s, SEC, NO),
};
DESC(wg_desc_file, wg_file, file_f);

static const struct wg_field file_lock_f[] = {
	FIELD(wg_file_lock, "kind", kind, CHAR, ZERO),
	FIELD(wg_file_lock, "write", write, BOOL, ZERO),
	FIELD(wg_file_lock, "blocked", blocked, BOOL, ZERO),
	FIELD(wg_file_lock, "pid", pid, I32, NONE),
	FIELD(wg_file_lock, "dev", dev, HEX, ZERO),
	FIELD(wg_file_lock, "ino", ino, U64, ZERO),
	FIELD(wg_file_lock, "start", start, I64, NO),
	FIELD(wg_file_lock, "end", end, I64, NO),
	FIELD(wg_file_lock, "id", id, I32, ZERO),
	FIELD(wg_file_lock, "taken_by", taken_by, I32, ZERO),
	FIELD(wg_file_lock, "holder_alive", holder_alive, BOOL, ZERO),
	FIELD(wg_file_lock, "holder_alive_known", holder_alive_known, BOOL, ZERO),
};
DESC(wg_desc_file_lock, wg_file_lock, file_lock_f);

static const struct wg_field gpu_process_f[] = {
	FIELD(wg_gpu_process, "pid", pid, I32, NONE),
	FIELD(wg_gpu_process, "bytes", bytes, I64, NO),
};
static DESC(gpu_process_d, wg_gpu_process, gpu_process_f);

static const struct wg_field failure_f[] = {
	FIELD(wg_failure, "at_s", at_s, SEC, NO),
	FIELD(wg_failure, "age_s", age_s, SEC, NO),
	FIELD(wg_failure, "tid", tid, I32, NONE),
	FIELD(wg_failure, "thread_name", thread_name, STR, ZERO),
	FIELD(wg_failure, "thread_alive", thread_alive, BOOL, ZERO),
	FIELD(wg_failure, "function", function, STR, ZERO),
	FIELD(wg_failure, "device", device, I64, NO),
	FIELD(wg_failure, "asked", asked, I64, NO),
	FIELD(wg_failure, "free", free, I64, NO),
	FIELD(wg_failure, "short_by", short_by, I64, NO),
	FIELD(wg_failure, "recovered", recovered, BOOL, NONE),
	FIELD(wg_failure, "recovered_known", recovered_known, BOOL, ZERO),
	FIELD(wg_failure, "error", error, I64, NO),
	LIST(wg_failure, "stack", stack, frame_d),
	LIST(wg_failure, "python_stack", python_stack, pyframe_d),
	FIELD(wg_failure, "seq", seq, I64, ZERO),
	FIELD(wg_failure, "host_memory", host_memory, BOOL, ZERO),
	FIELD(wg_failure, "pieces", pieces, I64, ZERO),
	FIELD(wg_failure, "repeats", repeats, I64, ZERO),
};
static DESC(failure_d, wg_failure, failure_f);

static const struct wg_field device_f[] = {
	FIELD(wg_device, "index", index, I64, NO),
	FIELD(wg_device, "uuid", uuid, STR, ZERO),
	FIELD(wg_device, "name", name, STR, ZERO),
	FIELD(wg_device, "total", total, I64, NO),
	FIELD(wg_device, "free", free, I64, NO),
	FIELD(wg_device, "own", own, I64, NO),
	FIELD(wg_device, "peak", peak, I64, NO),
	FIELD(wg_device, "least_free", least_free, I64, NO),
	FIELD(wg_device, "least_free_at_s", least_free_at_s, SEC, NO),
	FIELD(wg_device, "utilization", utilization, I64, NO),
	FIELD(wg_device, "power_w", power_w, SEC, NO),
	FIELD(wg_device, "power_limit_w", power_limit_w, SEC, NO),
	FIELD(wg_device, "sm_clock_mhz", sm_clock_mhz, I64, NO),
	LIST(wg_device, "other_processes", other_processes, gpu_process_d),
	LIST(wg_device, "failures", failures, failure_d),
	FIELD(wg_device, "pci", pci, STR, ZERO),
	FIELD(wg_device, "context_bytes", context_bytes, I64, NO),
	FIELD(wg_device, "allocs", allocs, I64, NO),
	FIELD(wg_device, "frees", frees, I64, NO),
	FIELD(wg_device, "failed", failed, I64, NO),
	FIELD(wg_device, "free_age_s", free_age_s, SEC, NO),
};
DESC(wg_desc_device, wg_device, device_f);

static const struct wg_field gpu_item_f[] = {
	FIELD(wg_gpu_item, "seq", seq, U64, NONE),
	ENUM(wg_gpu_item, "op", op, gpu_ops, NONE),
	FIELD(wg_gpu_item, "name", name, STR, ZERO),
	FIELD(wg_gpu_item, "object", object, HEX, ZERO),
	FIELD(wg_gpu_item, "value", value, HEX, ZERO),
	FIELD(wg_gpu_item, "flags", flags, U32, ZERO),
	FIELD(wg_gpu_item, "current", current, HEX, ZERO),
	FIELD(wg_gpu_item, "has_current", has_current, BOOL, ZERO),
	FIELD(wg_gpu_item, "comm_index", comm, I64, NO),
	FIELD(wg_gpu_item, "coll_seq", coll_seq, U64, ZERO),
	FIELD(wg_gpu_item, "event_recorded", event_recorded, BOOL, ZERO),
	FIELD(wg_gpu_item, "event_stream", event_stream, HEX, ZERO),
	FIELD(wg_gpu_item, "event_seq", event_seq, U64, ZERO),
	FIELD(wg_gpu_item, "event_device", event_device, I64, NO),
	FIELD(wg_gpu_item, "event_remote", event_remote, BOOL, ZERO),
	FIELD(wg_gpu_item, "age_s", age_s, SEC, NO),
	FIELD(wg_gpu_item, "tid", tid, I32, ZERO),
	FIELD(wg_gpu_item, "event_stream_ix", event_stream_ix, I64, NO),
	FIELD(wg_gpu_item, "nccl_inner", nccl_inner, BOOL, ZERO),
	FIELD(wg_gpu_item, "p2p", p2p, BOOL, ZERO),
};
static DESC(gpu_item_d, wg_gpu_item, gpu_item_f);

static const struct wg_field stream_f[] = {
	FIELD(wg_stream, "device", device, I64, NO),
	FIELD(wg_stream, "stream", handle, HEX, NONE),
	FIELD(wg_stream, "owner_tid", owner_tid, I32, ZERO),
	FIELD(wg_stream, "flags", flags, U32, ZERO),
	FIELD(wg_stream, "blocking_sync", blocking_sync, BOOL, ZERO),
	FIELD(wg_stream, "enqueued", enqueued, U64, NONE),
	FIELD(wg_stream, "completed", completed, U64, NONE),
	FIELD(wg_stream, "has_position", has_position, BOOL, ZERO),
	FIELD(wg_stream, "completed_exact", completed_exact, BOOL, ZERO),
	FIELD(wg_stream, "candidates", candidates, U64, ZERO),
	FIELD(wg_stream, "completed_delta", completed_delta, U64, ZERO),
	FIELD(wg_stream, "enqueued_delta", enqueued_delta, U64, ZERO),
	FIELD(wg_stream, "progress_age_s", progress_age_s, SEC, NO),
	FIELD(wg_stream, "longest_gap_s", longest_gap_s, SEC, NO),
	FIELD(wg_stream, "capturing", capturing, BOOL, ZERO),
	SUB(wg_stream, "pending", pending, VEC, gpu_item_d),
	FIELD(wg_stream, "pending_truncated", pending_truncated, BOOL, ZERO),
};
DESC(wg_desc_stream, wg_stream, stream_f);

static const struct wg_field collective_f[] = {
	FIELD(wg_collective, "sequence", sequence, U64, NONE),
	FIELD(wg_collective, "op", op, STR, ZERO),
	FIELD(wg_collective, "count", count, I64, NO),
	FIELD(wg_collective, "type", type, STR, ZERO),
	FIELD(wg_collective, "redop", redop, STR, ZERO),
	FIELD(wg_collective, "ungiven", ungiven, BOOL, ZERO),
	FIELD(wg_collective, "root", root, I64, NO),
	ENUM(wg_collective, "state", state, coll_states, NONE),
	FIELD(wg_collective, "age_s", age_s, SEC, NO),
	FIELD(wg_collective, "stream", stream, HEX, ZERO),
	FIELD(wg_collective, "tid", tid, I32, ZERO),
	FIELD(wg_collective, "host_blocked", host_blocked, BOOL, ZERO),
	FIELD(wg_collective, "p2p", p2p, BOOL, ZERO),
	FIELD(wg_collective, "grouped", grouped, BOOL, ZERO),
	FIELD(wg_collective, "captured", captured, BOOL, ZERO),
	FIELD(wg_collective, "failed", failed, BOOL, ZERO),
	FIELD(wg_collective, "state_known", state_known, BOOL, ZERO),
};
DESC(wg_desc_collective, wg_collective, collective_f);

static const struct wg_field comm_f[] = {
	FIELD(wg_comm, "id", id, STR, ZERO),
	FIELD(wg_comm, "handle", handle, HEX, ZERO),
	FIELD(wg_comm, "rank", rank, I64, NO),
	FIELD(wg_comm, "size", size, I64, NO),
	FIELD(wg_comm, "device", device, I64, NO),
	FIELD(wg_comm, "state", state, STR, ZERO),
	FIELD(wg_comm, "age_s", age_s, SEC, NO),
	FIELD(wg_comm, "next_sequence", next_sequence, U64, NONE),
	FIELD(wg_comm, "done", done, U64, NONE),
	FIELD(wg_comm, "done_known", done_known, BOOL, ZERO),
	SKIP(wg_comm, recent), /* stands in the process' `collectives` */
	FIELD(wg_comm, "async_error", async_error, I64, NO),
	FIELD(wg_comm, "library", library, STR, ZERO),
	FIELD(wg_comm, "p2p_next", p2p_next, U64, ZERO),
	FIELD(wg_comm, "p2p_done", p2p_done, U64, ZERO),
	FIELD(wg_comm, "parent", parent, STR, ZERO),
	FIELD(wg_comm, "children", children, I64, NO),
	FIELD(wg_comm, "name", name, STR, ZERO),
};
DESC(wg_desc_comm, wg_comm, comm_f);

static const struct wg_field peer_f[] = {
	FIELD(wg_peer, "comm", comm, STR, ZERO),
	FIELD(wg_peer, "rank", rank, I64, NO),
	FIELD(wg_peer, "host", host, STR, ZERO),
	FIELD(wg_peer, "boot", boot, STR, ZERO),
	FIELD(wg_peer, "pid", pid, I64, NO),
	FIELD(wg_peer, "start", start, I64, NO),
	SKIP(wg_peer, alive), /* `alive`, present only when it is known */
	SKIP(wg_peer, alive_known),
};
DESC(wg_desc_peer, wg_peer, peer_f);

static const struct wg_field pylock_f[] = {
	FIELD(wg_pylock, "futex", futex, HEX, ZERO),
	FIELD(wg_pylock, "object", object, HEX, ZERO),
	FIELD(wg_pylock, "kind", kind, STR, ZERO),
	FIELD(wg_pylock, "owner_tid", owner_tid, I32, ZERO),
	FIELD(wg_pylock, "waiter_tid", waiter_tid, I32, ZERO),
	ENUM(wg_pylock, "certainty", certainty, certainty_names, ZERO),
	FIELD(wg_pylock, "evidence", evidence, STR, ZERO),
	FIELD(wg_pylock, "owner_gone", owner_gone, BOOL, ZERO),
	FIELD(wg_pylock, "exclusive", exclusive, BOOL, ZERO),
	FIELD(wg_pylock, "own_made", own_made, BOOL, ZERO),
	FIELD(wg_pylock, "task", task, BOOL, ZERO),
	FIELD(wg_pylock, "has_map", has_map, BOOL, ZERO),
	FIELD(wg_pylock, "map_dev", map_dev, HEX, ZERO),
	FIELD(wg_pylock, "map_ino", map_ino, U64, ZERO),
	FIELD(wg_pylock, "map_off", map_off, HEX, ZERO),
};
static DESC(pylock_d, wg_pylock, pylock_f);

static const struct wg_field python_f[] = {
	FIELD(wg_python, "present", present, BOOL, ZERO),
	FIELD(wg_python, "version", version, STR, ZERO),
	FIELD(wg_python, "gil_held", gil_held, BOOL, ZERO),
	FIELD(wg_python, "gil_known", gil_known, BOOL, ZERO),
	FIELD(wg_python, "gil_holder", gil_holder, I32, ZERO),
	FIELD(wg_python, "gil_cond", gil_cond, HEX, ZERO),
	FIELD(wg_python, "gil_cond_end", gil_cond_end, HEX, ZERO),
	FIELD(wg_python, "finalizing", finalizing, BOOL, ZERO),
	FIELD(wg_python, "main_in_shutdown", main_in_shutdown, BOOL, ZERO),
	SUB(wg_python, "locks", locks, VEC, pylock_d),
};
static DESC(python_d, wg_python, python_f);

static const struct wg_field cgroup_f[] = {
	FIELD(wg_cgroup, "path", path, STR, ZERO),
	FIELD(wg_cgroup, "frozen", frozen, BOOL, ZERO),
	FIELD(wg_cgroup, "pids_max", pids_max, I64, NO),
	FIELD(wg_cgroup, "pids_current", pids_current, I64, NO),
	FIELD(wg_cgroup, "mem_max", mem_max, I64, NO),
	FIELD(wg_cgroup, "mem_current", mem_current, I64, NO),
	FIELD(wg_cgroup, "oom_kills", oom_kills, I64, NO),
	FIELD(wg_cgroup, "cpu_periods", cpu_periods, I64, NO),
	FIELD(wg_cgroup, "cpu_throttled", cpu_throttled, I64, NO),
	FIELD(wg_cgroup, "cpu_periods_delta", cpu_periods_delta, I64, NO),
	FIELD(wg_cgroup, "cpu_throttled_delta", cpu_throttled_delta, I64, NO),
	FIELD(wg_cgroup, "cpu_quota", cpu_quota, SEC, NO),
};
static DESC(cgroup_d, wg_cgroup, cgroup_f);

static const struct wg_field env_f[] = {
	FIELD(wg_env, "name", name, STR, ZERO),
	FIELD(wg_env, "value", value, STR, ZERO),
};
static DESC(env_d, wg_env, env_f);

static const struct wg_field end_f[] = {
	FIELD(wg_end, "known", known, BOOL, ZERO),
	FIELD(wg_end, "status", status, I32, ZERO),
	FIELD(wg_end, "signal", signal, I32, ZERO),
	FIELD(wg_end, "oom_killed", oom_killed, BOOL, ZERO),
	FIELD(wg_end, "killer_pid", killer_pid, I32, ZERO),
	FIELD(wg_end, "killer_name", killer_name, STR, ZERO),
	FIELD(wg_end, "age_s", age_s, SEC, NO),
};
static DESC(end_d, wg_end, end_f);

static const struct wg_field process_f[] = {
	FIELD(wg_process, "pid", pid, I32, NONE),
	FIELD(wg_process, "ppid", ppid, I32, ZERO),
	FIELD(wg_process, "pgid", pgid, I32, ZERO),
	FIELD(wg_process, "sid", sid, I32, ZERO),
	FIELD(wg_process, "ns_pid", ns_pid, I32, ZERO),
	FIELD(wg_process, "pidns", pidns, U64, ZERO),
	FIELD(wg_process, "start", start_ticks, U64, ZERO),
	FIELD(wg_process, "uid", uid, I64, NO),
	FIELD(wg_process, "host", host, STR, ZERO),
	FIELD(wg_process, "boot", boot, STR, ZERO),
	FIELD(wg_process, "rank", rank, I64, NO),
	FIELD(wg_process, "world", world, I64, NO),
	FIELD(wg_process, "rank_source", rank_source, STR, ZERO),
	FIELD(wg_process, "comm", comm, STR, ZERO),
	FIELD(wg_process, "command", command, STR, ZERO),
	FIELD(wg_process, "exe", exe, STR, ZERO),
	FIELD(wg_process, "state", state, CHAR, ZERO),
	FIELD(wg_process, "alive", alive, BOOL, NONE),
	FIELD(wg_process, "stub", stub, BOOL, ZERO),
	SKIP(wg_process, from_snapshot),  /* what is read is */
	FIELD(wg_process, "trace_only", trace_only, BOOL, ZERO),
	SKIP(wg_process, snapshot_age_s), /* follows from taken_at */
	FIELD(wg_process, "age_s", age_s, SEC, NO),
	SUB(wg_process, "end", end, OBJ, end_d),
	FIELD(wg_process, "tracer_pid", tracer_pid, I32, ZERO),
	FIELD(wg_process, "recorded", recorded, BOOL, NONE),
	FIELD(wg_process, "cuda_up", cuda_up, BOOL, ZERO),
	FIELD(wg_process, "forked", forked, BOOL, ZERO),
	FIELD(wg_process, "fork_age_s", fork_age_s, SEC, NO),
	FIELD(wg_process, "progress_age_s", progress_age_s, SEC, NO),
	FIELD(wg_process, "longest_sync_s", longest_sync_s, SEC, NO),
	FIELD(wg_process, "calls_delta", calls_delta, I64, NO),
	FIELD(wg_process, "rchar", rchar, I64, NO),
	FIELD(wg_process, "wchar", wchar, I64, NO),
	FIELD(wg_process, "rchar_delta", rchar_delta, I64, NO),
	FIELD(wg_process, "wchar_delta", wchar_delta, I64, NO),
	FIELD(wg_process, "read_bytes_delta", read_bytes_delta, I64, NO),
	FIELD(wg_process, "write_bytes_delta", write_bytes_delta, I64, NO),
	FIELD(wg_process, "cpu_share", cpu_share, SEC, NO),
	FIELD(wg_process, "children_cpu_share", children_cpu_share, SEC, NO),
	FIELD(wg_process, "majflt_delta", majflt_delta, I64, NO),
	FIELD(wg_process, "nofile_limit", nofile_limit, I64, NO),
	FIELD(wg_process, "nofile_used", nofile_used, I64, NO),
	FIELD(wg_process, "nproc_limit", nproc_limit, I64, NO),
	FIELD(wg_process, "nproc_used", nproc_used, I64, NO),
	FIELD(wg_process, "memlock_limit", memlock_limit, I64, NO),
	FIELD(wg_process, "memlock_used", memlock_used, I64, NO),
	FIELD(wg_process, "shm_size", shm_size, I64, NO),
	FIELD(wg_process, "shm_free", shm_free, I64, NO),
	SUB(wg_process, "cgroup", cgroup, OBJ, cgroup_d),
	SUB(wg_process, "python", python, OBJ, python_d),
	FIELD(wg_process, "phase", phase, STR, ZERO),
	FIELD(wg_process, "sources", sources, STRS, NONE),
	SUB(wg_process, "missing_facts", missing, VEC, wg_desc_missing),
	SUB(wg_process, "env", env, VEC, env_d),
	FIELD(wg_process, "modules", modules, STRS, ZERO),
	LIST(wg_process, "devices", devices, wg_desc_device),
	LIST(wg_process, "streams", streams, wg_desc_stream),
	SUB(wg_process, "comms", comms, VEC, wg_desc_comm),
	LIST(wg_process, "files", files, wg_desc_file),
	LIST(wg_process, "peers", peers, wg_desc_peer),
	FIELD(wg_process, "children", children, I32S, NONE),
	FIELD(wg_process, "notes", notes, STRS, ZERO),
	LIST(wg_process, "threads", threads, wg_desc_thread),
	FIELD(wg_process, "calls", calls, I64, NO),
	FIELD(wg_process, "taken_at", taken_at, SEC, ZERO),
	FIELD(wg_process, "state_dir", state_dir, STR, ZERO),
	FIELD(wg_process, "trace_path", trace_path, STR, ZERO),
	SKIP(wg_process, alive_known), /* looked up by the reader */
	SKIP(wg_process, died_since),
	SKIP(wg_process, stamped_at),
	FIELD(wg_process, "exiting", exiting, BOOL, ZERO),
	FIELD(wg_process, "memory_denied", memory_denied, BOOL, ZERO),
	FIELD(wg_process, "calls_denied", calls_denied, BOOL, ZERO),
	FIELD(wg_process, "tty_pgrp", tty_pgrp, I32, ZERO),
	FIELD(wg_process, "last_write_age_s", last_write_age_s, SEC, NO),
	FIELD(wg_process, "quiet_s", quiet_s, SEC, NO),
	SKIP(wg_process, collect),
};
DESC(wg_desc_process, wg_process, process_f);

static const struct wg_field facts_f[] = {
	SKIP(wg_facts, arena),
	FIELD(wg_facts, "host", host, STR, ZERO),
	FIELD(wg_facts, "boot", boot, STR, ZERO),
	FIELD(wg_facts, "taken_at_s", taken_at, SEC, ZERO), /* `taken_at` is for people */
	FIELD(wg_facts, "interval_s", interval_s, SEC, ZERO),
	FIELD(wg_facts, "live", live, BOOL, ZERO),
	FIELD(wg_facts, "is_root", is_root, BOOL, ZERO),
	FIELD(wg_facts, "fd_scan_complete", fd_scan_complete, BOOL, ZERO),
	FIELD(wg_facts, "lock_scan_complete", lock_scan_complete, BOOL, ZERO),
	SKIP(wg_facts, procs), /* `processes` */
	FIELD(wg_facts, "asked", asked, I32S, ZERO),
	SUB(wg_facts, "locks", locks, VEC, wg_desc_file_lock),
	FIELD(wg_facts, "kmsg", kmsg, STRS, ZERO),
	SUB(wg_facts, "missing", missing, VEC, wg_desc_missing),
	SKIP(wg_facts, collect),
	SKIP(wg_facts, recorder_cache),
	FIELD(wg_facts, "self_pid", self_pid, I32, ZERO),
	FIELD(wg_facts, "self_ppid", self_ppid, I32, ZERO),
	FIELD(wg_facts, "gone_tids", gone_tids, I32S, ZERO),
};
DESC(wg_desc_facts, wg_facts, facts_f);

const struct wg_desc *const wg_all_descs[] = {
	&wg_desc_missing, &frame_d, &pyframe_d, &arg_d, &wg_desc_call, &futex_d, &pollfd_d, &wait_d,
	&polled_d, &wg_desc_thread, &wg_desc_file, &wg_desc_file_lock, &gpu_process_d, &failure_d,
	&wg_desc_device, &gpu_item_d, &wg_desc_stream, &wg_desc_collective, &wg_desc_comm,
	&wg_desc_peer, &pylock_d, &python_d, &cgroup_d, &env_d, &end_d, &wg_desc_process,
	&wg_desc_facts, NULL
};

/* ---- writing -------------------------------------------------------------------- */

struct any_vec { /* every WG_VEC has this layout */
	char *v;
	size_t n, cap;
};

static json_t *hex(uint64_t v)
{
	char s[24];

	snprintf(s, sizeof(s), "0x%llx", (unsigned long long)v);
	return json_string_nocheck(s);
}

/* Microseconds are finer than anything measured, and print and parse without drift. */
static json_t *seconds(double v)
{
	double r = fabs(v) < 1e9 ? round(v * 1e6) / 1e6 : round(v * 1e3) / 1e3;

	return json_real(r == 0 ? 0 : r); /* no -0.0 */
}

static json_t *text(const char *s)
{
	json_t *j = json_string(s);

	/* wg_str() has cleaned everything that comes from outside; this is for what did not. */
	return j ? j : json_string_nocheck("?");
}

static void put(json_t *obj, const char *key, json_t *v)
{
	json_object_set_new_nocheck(obj, key, v);
}

static bool all_zero(const void *p, size_t n)
{
	const char *c = p;

	for (size_t i = 0; i < n; i++)
		if (c[i])
			return false;
	return true;
}

static void encode_array(const struct wg_field *x, const char *at, json_t *obj)
{
	size_t w = x->type == WG_F_HEXA ? 8 : 4, n = x->size / w;
	json_t *a;

	while (n && all_zero(at + (n - 1) * w, w))
		n--;
	if (!n)
		return;
	a = json_array();
	for (size_t i = 0; i < n; i++) {
		if (x->type == WG_F_HEXA)
			json_array_append_new(a, hex(((const uint64_t *)(const void *)at)[i]));
		else if (x->type == WG_F_U32A)
			json_array_append_new(
				a, json_integer(((const uint32_t *)(const void *)at)[i]));
		else
			json_array_append_new(
				a, json_integer(((const int32_t *)(const void *)at)[i]));
	}
	put(obj, x->key, a);
}

static void encode_int(const struct wg_field *x, int64_t v, json_t *obj)
{
	if ((x->absent == WG_A_ZERO && !v) || (x->absent == WG_A_NO && v == WG_NO_INT) ||
	    (x->absent == WG_A_M1 && v == -1))
		return;
	put(obj, x->key, json_integer(v));
}

static void encode_field(const struct wg_field *x, const void *s, json_t *obj)
{
	const char *at = (const char *)s + x->at;
	const struct any_vec *vec = (const void *)at;
	const char *str;
	uint64_t u;
	double d;
	int e;
	json_t *j;

	switch (x->type) {
	case WG_F_I16:
		encode_int(x, *(const int16_t *)(const void *)at, obj);
		break;
	case WG_F_I32:
		encode_int(x, *(const int32_t *)(const void *)at, obj);
		break;
	case WG_F_U32:
		encode_int(x, *(const uint32_t *)(const void *)at, obj);
		break;
	case WG_F_I64:
		encode_int(x, *(const int64_t *)(const void *)at, obj);
		break;
	case WG_F_U64:
	case WG_F_HEX:
		memcpy(&u, at, sizeof(u));
		if (!u && x->absent == WG_A_ZERO)
			break;
		put(obj, x->key,
		    x->type == WG_F_U64 && u <= INT64_MAX ? json_integer((json_int_t)u) : hex(u));
		break;
	case WG_F_SEC:
		memcpy(&d, at, sizeof(d));
		if (isnan(d) || isinf(d) || (x->absent == WG_A_ZERO && d == 0))
			break;
		put(obj, x->key, seconds(d));
		break;
	case WG_F_STR:
		str = *(const char *const *)(const void *)at;
		if (str)
			put(obj, x->key, text(str));
		break;
	case WG_F_BOOL:
		if (*(const bool *)at || x->absent == WG_A_NONE)
			put(obj, x->key, json_boolean(*(const bool *)at));
		break;
	case WG_F_CHAR:
		if (*at > ' ' && *at < 0x7f)
			put(obj, x->key, json_stringn_nocheck(at, 1));
		break;
	case WG_F_ENUM:
		memcpy(&e, at, sizeof(e));
		for (int i = 0; x->names[i]; i++)
			if (i == e && (e || x->absent == WG_A_NONE))
				put(obj, x->key, json_string_nocheck(x->names[i]));
		break;
	case WG_F_STRS:
		if (!vec->n && x->absent == WG_A_ZERO)
			break;
		j = json_array();
		for (size_t i = 0; i < vec->n; i++) {
			str = ((const char *const *)(void *)vec->v)[i];
			json_array_append_new(j, text(str ? str : "?"));
		}
		put(obj, x->key, j);
		break;
	case WG_F_I32S:
		if (!vec->n && x->absent == WG_A_ZERO)
			break;
		j = json_array();
		for (size_t i = 0; i < vec->n; i++)
			json_array_append_new(j, json_integer(((const int32_t *)(void *)vec->v)[i]));
		put(obj, x->key, j);
		break;
	case WG_F_VEC:
		if (!vec->n && x->absent == WG_A_ZERO)
			break;
		j = json_array();
		for (size_t i = 0; i < vec->n; i++) {
			json_t *o = json_object();

			wg_encode(x->desc, vec->v + i * x->desc->size, o);
			json_array_append_new(j, o);
		}
		put(obj, x->key, j);
		break;
	case WG_F_OBJ:
		j = json_object();
		wg_encode(x->desc, at, j);
		if (json_object_size(j))
			put(obj, x->key, j);
		else
			json_decref(j);
		break;
	case WG_F_U32A:
	case WG_F_I32A:
	case WG_F_HEXA:
		encode_array(x, at, obj);
		break;
	case WG_F_BYTES: {
		const uint8_t *bytes = *(const uint8_t *const *)(const void *)at;
		char digits[2 * MAX_HEX_BYTES + 1];
		size_t n;

		memcpy(&n, (const char *)s + x->len_at, sizeof(n));
		if (!bytes || !n || n > MAX_HEX_BYTES)
			break;
		for (size_t i = 0; i < n; i++)
			snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
		put(obj, x->key, json_string_nocheck(digits));
		break;
	}
	case WG_F_SKIP:
		break;
	}
}

void wg_encode(const struct wg_desc *d, const void *s, json_t *obj)
{
	for (size_t i = 0; i < d->n; i++)
		encode_field(&d->fields[i], s, obj);
}

/* ---- reading ------------------------------------------------------------------------ */

int wg_decode_error(struct wg_decoder *dec, const char *what)
{
	char path[512] = "";
	size_t n = 0;

	if (dec->why)
		return -EINVAL;
	for (int i = 0; i < dec->depth && n < sizeof(path) - 1; i++) {
		int k;

		if (dec->index[i] >= 0)
			k = snprintf(path + n, sizeof(path) - n, "%s%s[%ld]", i ? "." : "",
				     dec->path[i], dec->index[i]);
		else
			k = snprintf(path + n, sizeof(path) - n, "%s%s", i ? "." : "", dec->path[i]);
		if (k < 0)
			break;
		n += (size_t)k;
	}
	dec->why = wg_fmt(dec->arena, "%s: %s", *path ? path : "document", what);
	return -EINVAL;
}

void wg_reset(const struct wg_desc *d, void *s)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct wg_field *x = &d->fields[i];
		void *at = (char *)s + x->at;

		if (x->type == WG_F_SKIP)
			continue;
		memset(at, 0, x->size);
		if (x->type == WG_F_BYTES)
			memset((char *)s + x->len_at, 0, sizeof(size_t));
		if (x->type == WG_F_OBJ)
			wg_reset(x->desc, at);
		else if (x->absent == WG_A_NO && x->type == WG_F_SEC)
			*(double *)at = WG_NO_SEC;
		else if (x->absent == WG_A_NO && x->type == WG_F_I64)
			*(int64_t *)at = WG_NO_INT;
		else if (x->absent == WG_A_M1 && x->type == WG_F_I32)
			*(int32_t *)at = -1;
	}
}

static bool get_u64(const json_t *j, uint64_t *out)
{
	const char *s;
	char *end;

	if (json_is_integer(j) && json_integer_value(j) >= 0) {
		*out = (uint64_t)json_integer_value(j);
		return true;
	}
	s = json_string_value(j);
	if (!s || s[0] != '0' || s[1] != 'x' || !s[2] || strlen(s) > 18)
		return false;
	errno = 0;
	*out = strtoull(s + 2, &end, 16);
	return !errno && !*end && s[2] != '-' && s[2] != '+' && s[2] != ' ';
}

static int decode_int(const struct wg_field *x, void *at, const json_t *j, struct wg_decoder *dec)
{
	int64_t v = json_integer_value(j);

	if (!json_is_integer(j))
		return wg_decode_error(dec, "an integer is expected");
	switch (x->type) {
	case WG_F_I16:
		if (v < INT16_MIN || v > INT16_MAX)
			return wg_decode_error(dec, "out of range");
		*(int16_t *)at = (int16_t)v;
		break;
	case WG_F_I32:
		if (v < INT32_MIN || v > INT32_MAX)
			return wg_decode_error(dec, "out of range");
		*(int32_t *)at = (int32_t)v;
		break;
	case WG_F_U32:
		if (v < 0 || v > UINT32_MAX)
			return wg_decode_error(dec, "out of range");
		*(uint32_t *)at = (uint32_t)v;
		break;
	default:
		*(int64_t *)at = v;
		break;
	}
	return 0;
}

static int decode_array(const struct wg_field *x, char *at, const json_t *j, struct wg_decoder *dec)
{
	size_t w = x->type == WG_F_HEXA ? 8 : 4;
	const json_t *e;
	size_t i;

	if (!json_is_array(j) || json_array_size(j) > x->size / w)
		return wg_decode_error(dec, "a short array is expected");
	json_array_foreach((json_t *)j, i, e) {
		int64_t v = json_integer_value(e);
		uint64_t u;

		if (x->type == WG_F_HEXA) {
			if (!get_u64(e, &u))
				return wg_decode_error(dec, "a number is expected");
			memcpy(at + i * 8, &u, 8);
			continue;
		}
		if (!json_is_integer(e) || (x->type == WG_F_U32A && (v < 0 || v > UINT32_MAX)) ||
		    (x->type == WG_F_I32A && (v < INT32_MIN || v > INT32_MAX)))
			return wg_decode_error(dec, "a 32-bit number is expected");
		u = (uint64_t)v;
		memcpy(at + i * 4, &u, 4);
	}
	return 0;
}

static int decode_field(const struct wg_field *x, void *s, const json_t *j, struct wg_decoder *dec)
{
	char *at = (char *)s + x->at;
	struct any_vec *vec = (void *)at;
	const json_t *e;
	const char *str;
	size_t i;
	int rc;

	switch (x->type) {
	case WG_F_I16:
	case WG_F_I32:
	case WG_F_U32:
	case WG_F_I64:
		return decode_int(x, at, j, dec);
	case WG_F_U64:
	case WG_F_HEX: {
		uint64_t u;

		if (!get_u64(j, &u))
			return wg_decode_error(dec, "a number is expected");
		memcpy(at, &u, sizeof(u));
		return 0;
	}
	case WG_F_SEC:
		if (!json_is_number(j) || !isfinite(json_number_value(j)))
			return wg_decode_error(dec, "a number is expected");
		*(double *)(void *)at = json_number_value(j);
		return 0;
	case WG_F_STR:
		if (!json_is_string(j))
			return wg_decode_error(dec, "a string is expected");
		*(const char **)(void *)at =
			wg_strn(dec->arena, json_string_value(j), json_string_length(j));
		return 0;
	case WG_F_BOOL:
		if (!json_is_boolean(j))
			return wg_decode_error(dec, "true or false is expected");
		*(bool *)at = json_is_true(j);
		return 0;
	case WG_F_CHAR:
		if (!json_is_string(j) || json_string_length(j) != 1)
			return wg_decode_error(dec, "one letter is expected");
		if (*json_string_value(j) > ' ' && *json_string_value(j) < 0x7f)
			*at = *json_string_value(j);
		return 0;
	case WG_F_ENUM:
		str = json_string_value(j);
		if (!str)
			return wg_decode_error(dec, "a string is expected");
		for (int k = 0; x->names[k]; k++)
			if (!strcmp(x->names[k], str))
				memcpy(at, &k, sizeof(k));
		return 0; /* a word of a newer writer stays what absent is */
	case WG_F_STRS:
		if (!json_is_array(j))
			return wg_decode_error(dec, "an array is expected");
		json_array_foreach((json_t *)j, i, e) {
			if (!json_is_string(e))
				return wg_decode_error(dec, "strings are expected");
			*(const char **)wg_vec_push(dec->arena, (void **)&vec->v, &vec->n, &vec->cap,
						    sizeof(char *)) =
				wg_strn(dec->arena, json_string_value(e), json_string_length(e));
		}
		return 0;
	case WG_F_I32S:
		if (!json_is_array(j))
			return wg_decode_error(dec, "an array is expected");
		json_array_foreach((json_t *)j, i, e) {
			if (!json_is_integer(e) || json_integer_value(e) < INT32_MIN ||
			    json_integer_value(e) > INT32_MAX)
				return wg_decode_error(dec, "32-bit numbers are expected");
			*(int32_t *)wg_vec_push(dec->arena, (void **)&vec->v, &vec->n, &vec->cap,
						sizeof(int32_t)) = (int32_t)json_integer_value(e);
		}
		return 0;
	case WG_F_VEC:
		if (!json_is_array(j))
			return wg_decode_error(dec, "an array is expected");
		json_array_foreach((json_t *)j, i, e) {
			/* Elements hold pointers to their own lists, so they may move. */
			void *el = wg_vec_push(dec->arena, (void **)&vec->v, &vec->n, &vec->cap,
					       x->desc->size);

			dec->index[dec->depth - 1] = (long)i;
			rc = wg_decode(x->desc, el, e, dec);
			if (rc)
				return rc;
		}
		return 0;
	case WG_F_OBJ:
		return wg_decode(x->desc, at, j, dec);
	case WG_F_U32A:
	case WG_F_I32A:
	case WG_F_HEXA:
		return decode_array(x, at, j, dec);
	case WG_F_BYTES: {
		size_t n = json_string_length(j) / 2;
		uint8_t *bytes;

		str = json_string_value(j);
		if (!str || json_string_length(j) % 2 || n > MAX_HEX_BYTES ||
		    strspn(str, "0123456789abcdefABCDEF") != 2 * n)
			return wg_decode_error(dec, "hex digits are expected");
		bytes = wg_alloc(dec->arena, n + 1);
		for (i = 0; i < n; i++) {
			char two[3] = { str[2 * i], str[2 * i + 1], 0 };

			bytes[i] = (uint8_t)strtoul(two, NULL, 16);
		}
		*(const uint8_t **)(void *)at = bytes;
		memcpy((char *)s + x->len_at, &n, sizeof(n));
		return 0;
	}
	case WG_F_SKIP:
		return 0;
	}
	return 0;
}

int wg_decode(const struct wg_desc *d, void *s, const json_t *obj, struct wg_decoder *dec)
{
	int rc = 0;

	wg_reset(d, s);
	if (!json_is_object(obj))
		return wg_decode_error(dec, "an object is expected");
	for (size_t i = 0; i < d->n && !rc; i++) {
		const struct wg_field *x = &d->fields[i];
		const json_t *j;

		if (x->type == WG_F_SKIP)
			continue;
		j = json_object_get(obj, x->key);
		if (!j || json_is_null(j))
			continue;
		if (dec->depth >= 16)
			return wg_decode_error(dec, "too deep");
		dec->path[dec->depth] = x->key;
		dec->index[dec->depth] = -1;
		dec->depth++;
		rc = decode_field(x, s, j, dec);
		dec->depth--;
	}
	return rc;
}
