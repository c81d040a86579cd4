/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets.c - what the sockets of a process are, and who is at the other end.
 *
 * The kernel's socket diagnostics give state, queues and the inode of a Unix socket's peer;
 * a TCP connection's other end on this host is the socket with the two addresses exchanged,
 * in whatever network namespace it is. A connection that the server has not accepted yet has
 * no owner: the one to wait for is then who listens. Tables are asked once per network
 * namespace and sample; without permission for a foreign namespace /proc/PID/net tells the
 * states, but no Unix peers.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bulk.h"
#include "procfs.h"

#define SOCKETS_DEADLINE_S 1.0
#define MAX_ICONS 4096

enum { R_NL_UNIX = 1, R_NL_INET, R_NET_TCP, R_NET_TCP6, R_NET_UDP, R_NET_UDP6, R_NET_UNIX,
       R_FAILED };

struct sock {
	uint64_t ino, peer; /* peer: Unix, as the kernel says */
	uint8_t family, type, state, shutdown;
	bool has_shutdown, has_queues;
	uint8_t laddr[16], raddr[16];
	uint16_t lport, rport;
	int64_t rxq, txq;
	bool has_account; /* TCP: what was sent and received, and when last */
	uint64_t sent, received;
	uint32_t sent_ms, received_ms;
	const char *path; /* Unix: the name it is bound to */
};

struct icon { /* a client whose connection nobody has accepted yet */
	uint64_t client, listener;
};

struct table {
	uint64_t netns;
	bool complete; /* from diagnostics, with peers */
	struct sock *v;
	size_t n, cap;
	size_t *by_tuple; /* TCP connections, sorted by their own two addresses */
	size_t ntuple;
	struct icon *icons;
	size_t nicons;
	struct table *next;
};

struct wg_socks {
	struct table *tables;
};

/* ---- asking ------------------------------------------------------------------------- */

struct sock_arg {
	int nsfd;  /* network namespace to go to; -1 ours */
	int dirfd; /* /proc/PID for the second way */
};

static int ask(struct wg_bulk *b, int nl, const void *req, size_t len, int kind, int id)
{
	struct {
		struct nlmsghdr h;
		char body[128];
	} m;
	static const size_t room = 64 * 1024;
	char *buf = malloc(room);
	int rc = 0;

	if (!buf)
		return -ENOMEM;
	memset(&m, 0, sizeof(m));
	m.h.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + len);
	m.h.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	m.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	memcpy(m.body, req, len);
	if (send(nl, &m, m.h.nlmsg_len, 0) < 0) {
		rc = -errno;
		goto out;
	}
	for (;;) {
		ssize_t n = recv(nl, buf, room, 0);
		bool done = false;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			rc = n ? -errno : -EIO;
			break;
		}
		for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (size_t)n);
		     h = NLMSG_NEXT(h, n)) {
			if (h->nlmsg_type == NLMSG_DONE) {
				done = true;
				break;
			}
			if (h->nlmsg_type == NLMSG_ERROR) {
				rc = ((struct nlmsgerr *)NLMSG_DATA(h))->error;
				if (!rc)
					rc = -EIO;
				goto out;
			}
			if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
			    wg_bulk_put(b, kind, id, 0, NLMSG_DATA(h),
					h->nlmsg_len - NLMSG_HDRLEN) == -ENOSPC) {
				rc = -ENOSPC;
				goto out;
			}
		}
		if (done)
			break;
	}
out:
	free(buf);
	return rc;
}

static int ask_inet(struct wg_bulk *b, int nl, int family, int protocol)
{
	struct inet_diag_req_v2 r;

	memset(&r, 0, sizeof(r));
	r.sdiag_family = (uint8_t)family;
	r.sdiag_protocol = (uint8_t)protocol;
	r.idiag_states = ~0u;
	r.idiag_ext = 1 << (INET_DIAG_SHUTDOWN - 1);
	if (protocol == IPPROTO_TCP)
		r.idiag_ext |= 1 << (INET_DIAG_INFO - 1);
	return ask(b, nl, &r, sizeof(r), R_NL_INET, protocol);
}

static void read_sockets(struct wg_bulk *b)
{
	struct sock_arg *a = wg_bulk_arg(b);
	struct unix_diag_req u;
	int nl = -1, rc = 0;

	/* This thread ends with the job: where it goes concerns nobody else. */
	if (a->nsfd >= 0 && setns(a->nsfd, CLONE_NEWNET))
		rc = -errno;
	if (!rc) {
		nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
		rc = nl < 0 ? -errno : 0;
	}
	if (!rc) {
		memset(&u, 0, sizeof(u));
		u.sdiag_family = AF_UNIX;
		u.udiag_states = ~0u;
		u.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS |
			       UDIAG_SHOW_RQLEN;
		rc = ask(b, nl, &u, sizeof(u), R_NL_UNIX, 0);
	}
	if (!rc)
		rc = ask_inet(b, nl, AF_INET, IPPROTO_TCP);
	if (!rc) { /* IPv6 and UDP may not be configured: no reason to do without the rest */
		ask_inet(b, nl, AF_INET6, IPPROTO_TCP);
		ask_inet(b, nl, AF_INET, IPPROTO_UDP);
		ask_inet(b, nl, AF_INET6, IPPROTO_UDP);
	}
	if (nl >= 0)
		close(nl);
	if (!rc)
		return;
	wg_bulk_put(b, R_FAILED, 0, rc, NULL, 0);
	wg_bulk_file(b, a->dirfd, "net/tcp", R_NET_TCP, 0, 16 << 20);
	wg_bulk_file(b, a->dirfd, "net/tcp6", R_NET_TCP6, 0, 16 << 20);
	wg_bulk_file(b, a->dirfd, "net/udp", R_NET_UDP, 0, 4 << 20);
	wg_bulk_file(b, a->dirfd, "net/udp6", R_NET_UDP6, 0, 4 << 20);
	wg_bulk_file(b, a->dirfd, "net/unix", R_NET_UNIX, 0, 16 << 20);
}

/* ---- taking the answers ------------------------------------------------------------------ */

/* IPv4 in the IPv6 form that the kernel uses for both on dual sockets. */
static void mapped(uint8_t *out, int family, const void *addr)
{
	memset(out, 0, 16);
	if (family == AF_INET) {
		out[10] = out[11] = 0xff;
		memcpy(out + 12, addr, 4);
	} else {
		memcpy(out, addr, 16);
	}
}

static struct sock *add(struct table *t)
{
	struct sock *s;

	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 256;

		s = realloc(t->v, cap * sizeof(*s));
		if (!s)
			return NULL;
		t->v = s;
		t->cap = cap;
	}
	s = &t->v[t->n++];
	memset(s, 0, sizeof(*s));
	return s;
}

static void add_icon(struct table *t, uint64_t client, uint64_t listener)
{
	if (!t->icons)
		t->icons = calloc(MAX_ICONS, sizeof(*t->icons));
	if (!t->icons || t->nicons == MAX_ICONS || !client)
		return;
	t->icons[t->nicons].client = client;
	t->icons[t->nicons++].listener = listener;
}

static void take_unix(struct wg_facts *f, struct table *t, const char *data, size_t len)
{
	const struct unix_diag_msg *m = (const void *)data;
	struct sock *s;
	size_t at = NLMSG_ALIGN(sizeof(*m));

	if (len < sizeof(*m))
		return;
	s = add(t);
	if (!s)
		return;
	s->ino = m->udiag_ino;
	s->family = AF_UNIX;
	s->type = m->udiag_type;
	s->state = m->udiag_state;
	while (at + sizeof(struct rtattr) <= len) {
		const struct rtattr *a = (const void *)(data + at);
		const char *v = data + at + RTA_LENGTH(0);
		size_t n;

		if (a->rta_len < sizeof(*a) || a->rta_len > len - at)
			break;
		n = a->rta_len - RTA_LENGTH(0);
		switch (a->rta_type) {
		case UNIX_DIAG_NAME:
			if (n && !v[0])
				s->path = wg_fmt(f->arena, "@%.*s", (int)(n - 1), v + 1);
			else if (n)
				s->path = wg_strn(f->arena, v, strnlen(v, n));
			break;
		case UNIX_DIAG_PEER:
			if (n >= 4)
				s->peer = *(const uint32_t *)(const void *)v;
			break;
		case UNIX_DIAG_ICONS:
			for (size_t i = 0; i + 4 <= n; i += 4)
				add_icon(t, *(const uint32_t *)(const void *)(v + i), s->ino);
			break;
		case UNIX_DIAG_RQLEN:
			if (n >= sizeof(struct unix_diag_rqlen)) {
				const struct unix_diag_rqlen *q = (const void *)v;

				s->rxq = q->udiag_rqueue;
				s->txq = q->udiag_wqueue;
				s->has_queues = true;
			}
			break;
		case UNIX_DIAG_SHUTDOWN:
			if (n >= 1) {
				s->shutdown = (uint8_t)*v;
				s->has_shutdown = true;
			}
			break;
		}
		at += RTA_ALIGN(a->rta_len);
	}
}

static void take_inet(struct table *t, int protocol, const char *data, size_t len)
{
	const struct inet_diag_msg *m = (const void *)data;
	size_t at = NLMSG_ALIGN(sizeof(*m));
	struct sock *s;

	if (len < sizeof(*m))
		return;
	s = add(t);
	if (!s)
		return;
	s->ino = m->idiag_inode;
	s->family = m->idiag_family;
	s->state = m->idiag_state;
	s->type = protocol == IPPROTO_UDP ? SOCK_DGRAM : SOCK_STREAM;
	mapped(s->laddr, m->idiag_family, m->id.idiag_src);
	mapped(s->raddr, m->idiag_family, m->id.idiag_dst);
	s->lport = ntohs(m->id.idiag_sport);
	s->rport = ntohs(m->id.idiag_dport);
	s->rxq = m->idiag_rqueue;
	s->txq = m->idiag_wqueue;
	s->has_queues = true;
	while (at + sizeof(struct rtattr) <= len) {
		const struct rtattr *a = (const void *)(data + at);

		if (a->rta_len < sizeof(*a) || a->rta_len > len - at)
			break;
		if (a->rta_type == INET_DIAG_SHUTDOWN && a->rta_len > RTA_LENGTH(0)) {
			s->shutdown = *(const uint8_t *)(data + at + RTA_LENGTH(0));
			s->has_shutdown = true;
		}
		/* Older kernels send a shorter account, without the count of what was sent. */
		if (a->rta_type == INET_DIAG_INFO && protocol == IPPROTO_TCP &&
		    a->rta_len >= RTA_LENGTH(offsetof(struct tcp_info, tcpi_bytes_retrans))) {
			struct tcp_info info;

			memcpy(&info, data + at + RTA_LENGTH(0),
			       offsetof(struct tcp_info, tcpi_bytes_retrans));
			s->sent = info.tcpi_bytes_sent;
			s->received = info.tcpi_bytes_received;
			s->sent_ms = info.tcpi_last_data_sent;
			s->received_ms = info.tcpi_last_data_recv;
			s->has_account = true;
		}
		at += RTA_ALIGN(a->rta_len);
	}
}

static void take_text(struct wg_facts *f, struct table *t, int kind, const char *text)
{
	int family = kind == R_NET_TCP6 || kind == R_NET_UDP6 ? AF_INET6 : AF_INET;
	int type = kind == R_NET_UDP || kind == R_NET_UDP6 ? SOCK_DGRAM : SOCK_STREAM;
	struct wg_pt_sock x;

	while (kind == R_NET_UNIX ? wg_pt_unix(&text, &x) : wg_pt_inet(&text, family, type, &x)) {
		struct sock *s = add(t);

		if (!s)
			return;
		s->ino = x.ino;
		s->type = (uint8_t)x.type;
		s->state = (uint8_t)x.state;
		if (kind == R_NET_UNIX) {
			/* SS_UNCONNECTED 1, SS_CONNECTING 2, SS_CONNECTED 3 -> the TCP numbers */
			s->family = AF_UNIX;
			s->state = x.listening ? 10 : x.state == 3 ? 1 : x.state == 2 ? 2 : 7;
			s->path = x.path[0] ? wg_str(f->arena, x.path) : NULL;
			continue;
		}
		s->family = (uint8_t)family;
		mapped(s->laddr, family, x.laddr);
		mapped(s->raddr, family, x.raddr);
		s->lport = x.lport;
		s->rport = x.rport;
		s->rxq = x.rxq;
		s->txq = x.txq;
		s->has_queues = true;
	}
}

static int by_ino(const void *x, const void *y)
{
	const struct sock *a = x, *b = y;

	return a->ino < b->ino ? -1 : a->ino > b->ino;
}

/* By local, then remote address; b's seen from the other side when turned. */
static int cmp_tuple(const struct sock *a, const struct sock *b, bool turned)
{
	const uint8_t *bl = turned ? b->raddr : b->laddr, *br = turned ? b->laddr : b->raddr;
	uint16_t blp = turned ? b->rport : b->lport, brp = turned ? b->lport : b->rport;
	int c;

	if (a->lport != blp)
		return a->lport < blp ? -1 : 1;
	if (a->rport != brp)
		return a->rport < brp ? -1 : 1;
	c = memcmp(a->laddr, bl, 16);
	return c ? c : memcmp(a->raddr, br, 16);
}

static int by_tuple(const void *x, const void *y, void *arg)
{
	const struct table *t = arg;

	return cmp_tuple(&t->v[*(const size_t *)x], &t->v[*(const size_t *)y], false);
}

static void finish_table(struct table *t)
{
	if (t->n)
		qsort(t->v, t->n, sizeof(*t->v), by_ino);
	t->by_tuple = calloc(t->n + 1, sizeof(*t->by_tuple));
	if (!t->by_tuple)
		return;
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].family != AF_UNIX && t->v[i].type == SOCK_STREAM && t->v[i].rport)
			t->by_tuple[t->ntuple++] = i;
	if (t->ntuple)
		qsort_r(t->by_tuple, t->ntuple, sizeof(*t->by_tuple), by_tuple, t);
}

static struct table *table_of(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	uint64_t ns = k->netns ? k->netns : c->netns;
	struct sock_arg *a;
	struct wg_bulk *b;
	struct table *t;
	size_t cursor = 0;
	struct wg_raw r;

	if (!c->socks)
		c->socks = calloc(1, sizeof(*c->socks));
	if (!c->socks)
		return NULL;
	for (t = c->socks->tables; t; t = t->next)
		if (t->netns == ns)
			return t;
	t = calloc(1, sizeof(*t));
	b = wg_bulk_new(256 << 20, sizeof(*a));
	if (!t || !b) {
		free(t);
		wg_bulk_free(b);
		return NULL;
	}
	t->netns = ns;
	t->complete = true;
	t->next = c->socks->tables;
	c->socks->tables = t;
	a = wg_bulk_arg(b);
	a->nsfd = -1;
	a->dirfd = wg_bulk_own_fd(b, k->dirfd);
	if (ns != c->netns) {
		int fd = openat(k->dirfd, "ns/net", O_RDONLY | O_CLOEXEC);

		a->nsfd = wg_bulk_own_fd(b, fd);
		if (fd >= 0)
			close(fd);
	}
	if (wg_bulk_run(b, wg_pctx_left(c, SOCKETS_DEADLINE_S), read_sockets) == -ETIMEDOUT)
		wg_add_missing(f, p, "sockets", "the kernel's socket tables did not answer in time",
			       NULL);
	while (wg_bulk_next(b, &cursor, &r)) {
		if (r.kind == R_NL_UNIX) {
			take_unix(f, t, r.text, r.len);
		} else if (r.kind == R_NL_INET) {
			take_inet(t, r.id, r.text, r.len);
		} else if (r.kind == R_FAILED) {
			t->complete = false;
			t->n = 0;
			wg_add_missing(f, p, "peers of Unix sockets",
				       wg_fmt(f->arena, "socket diagnostics: %s", strerror(-r.err)),
				       "run as root");
		} else if (!r.err) {
			take_text(f, t, r.kind, r.text);
		}
	}
	wg_bulk_free(b);
	finish_table(t);
	return t;
}

static const struct sock *find_ino(const struct table *t, uint64_t ino)
{
	struct sock key = { .ino = ino };

	return t->n && ino ? bsearch(&key, t->v, t->n, sizeof(*t->v), by_ino) : NULL;
}

/* The other end of a TCP connection, in any namespace that was asked. */
static const struct sock *find_other_end(const struct wg_socks *all, const struct sock *s)
{
	for (const struct table *t = all->tables; t; t = t->next) {
		size_t lo = 0, hi = t->ntuple;

		while (lo < hi) {
			size_t mid = (lo + hi) / 2;

			if (cmp_tuple(&t->v[t->by_tuple[mid]], s, true) < 0)
				lo = mid + 1;
			else
				hi = mid;
		}
		for (; lo < t->ntuple; lo++) {
			const struct sock *o = &t->v[t->by_tuple[lo]];

			if (cmp_tuple(o, s, true))
				break;
			if (o != s && o->state != 6) /* TIME_WAIT has no owner */
				return o;
		}
	}
	return NULL;
}

static bool is_any(const uint8_t *addr)
{
	static const uint8_t any4[16] = { [10] = 0xff, [11] = 0xff }, any6[16];

	return !memcmp(addr, any4, 16) || !memcmp(addr, any6, 16);
}

static const struct sock *find_listener(const struct table *t, const uint8_t *addr, uint16_t port)
{
	const struct sock *best = NULL;

	for (size_t i = 0; i < t->n; i++) {
		const struct sock *s = &t->v[i];

		if (s->family == AF_UNIX || s->type != SOCK_STREAM || s->state != 10 ||
		    s->lport != port)
			continue;
		if (!memcmp(s->laddr, addr, 16))
			return s;
		if (is_any(s->laddr))
			best = s;
	}
	return best;
}

/*
 * Who of the two connected? Where somebody listens the connection was accepted; a port that the
 * kernel gives to clients, towards one that it does not, was connected from.
 */
static int role_of(const struct wg_socks *all, const struct table *t, const struct sock *s)
{
	static const uint16_t first_given = 32768;

	if (s->type != SOCK_STREAM || !s->rport)
		return 0;
	if (find_listener(t, s->laddr, s->lport))
		return 2;
	for (const struct table *o = all->tables; o; o = o->next)
		if (find_listener(o, s->raddr, s->rport))
			return 1;
	return s->lport >= first_given && s->rport < first_given ? 1 : 0;
}

static const char *address_text(struct wg_facts *f, const uint8_t *addr, uint16_t port)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };
	char buf[INET6_ADDRSTRLEN];

	if (!memcmp(addr, prefix, 12))
		return inet_ntop(AF_INET, addr + 12, buf, sizeof(buf)) ?
		       wg_fmt(f->arena, "%s:%u", buf, port) : NULL;
	return inet_ntop(AF_INET6, addr, buf, sizeof(buf)) ?
	       wg_fmt(f->arena, "[%s]:%u", buf, port) : NULL;
}

static enum wg_sock_state state_of(const struct sock *s)
{
	switch (s->state) {
	case 1:
		return WG_SOCK_CONNECTED;
	case 2:
	case 3:
		return WG_SOCK_CONNECTING;
	case 4:
	case 5:
	case 8:
	case 9:
	case 11:
		return WG_SOCK_CLOSING;
	case 6:
		return WG_SOCK_CLOSED;
	case 7:
		/* A TCP socket that was connected and is not any more keeps its addresses. */
		return s->family != AF_UNIX && s->rport ? WG_SOCK_CLOSED : WG_SOCK_UNCONNECTED;
	case 10:
		return WG_SOCK_LISTEN;
	}
	return WG_SOCK_UNKNOWN;
}

static void fill(struct wg_facts *f, const struct wg_socks *all, const struct table *t,
		 const struct sock *s, struct wg_file *x)
{
	const struct sock *peer;

	x->sock_local = x->sock_remote = NULL; /* of the sample before */
	x->sock_peer_ino = 0;
	x->sock_family = s->family;
	x->sock_type = s->type;
	x->sock_state = state_of(s);
	if (s->has_shutdown)
		x->sock_shutdown = s->shutdown;
	if (s->has_queues && x->sock_state == WG_SOCK_LISTEN) {
		x->sock_backlog = s->rxq; /* connections that wait to be accepted */
	} else if (s->has_queues) {
		x->sock_rxq = s->rxq;
		x->sock_txq = s->txq;
	}
	if (s->has_account && x->sock_state != WG_SOCK_LISTEN) {
		x->sock_sent_bytes = (int64_t)s->sent;
		x->sock_recv_bytes = (int64_t)s->received;
		x->sock_sent_age_s = s->sent_ms * 1e-3;
		x->sock_recv_age_s = s->received_ms * 1e-3;
	}
	if (s->family == AF_UNIX) {
		x->sock_local = s->path;
		x->sock_peer_ino = s->peer;
		peer = find_ino(t, s->peer);
		if (peer)
			x->sock_remote = peer->path;
		/*
		 * Not accepted yet: the other end has no owner. Whoever listens has to come.
		 */
		for (size_t i = 0; !s->peer && i < t->nicons; i++)
			if (t->icons[i].client == s->ino) {
				x->sock_peer_ino = t->icons[i].listener;
				peer = find_ino(t, x->sock_peer_ino);
				if (peer)
					x->sock_remote = peer->path;
			}
		return;
	}
	if (!is_any(s->laddr) || s->lport)
		x->sock_local = address_text(f, s->laddr, s->lport);
	if (!s->rport)
		return;
	x->sock_role = role_of(all, t, s);
	x->sock_remote = address_text(f, s->raddr, s->rport);
	peer = find_other_end(all, s);
	if (peer && peer->ino) {
		x->sock_peer_ino = peer->ino;
	} else if (peer || x->sock_state == WG_SOCK_CONNECTING) {
		const struct sock *l = find_listener(t, s->raddr, s->rport);

		for (const struct table *o = all->tables; o && !l; o = o->next)
			l = peer ? find_listener(o, s->raddr, s->rport) : NULL;
		if (l)
			x->sock_peer_ino = l->ino;
	}
}

void wg_sockets_fill(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);
	struct table *t = NULL;

	for (size_t i = 0; i < p->files.n; i++) {
		struct wg_file *x = &p->files.v[i];
		const struct sock *s;

		if (x->kind != WG_FILE_SOCKET || !x->ino)
			continue;
		if (!t)
			t = table_of(f, p);
		if (!t)
			return;
		s = find_ino(t, x->ino);
		/* It may have been made in another namespace and passed on. */
		for (const struct table *o = c->socks->tables; o && !s; o = o->next)
			s = find_ino(o, x->ino);
		if (s)
			fill(f, c->socks, t, s, x);
	}
}

uint64_t wg_sockets_listener(struct wg_facts *f, struct wg_process *p, const char *address)
{
	const struct table *t = table_of(f, p);
	const char *colon = strrchr(address, ':');
	uint8_t raw[16], addr[16];
	const struct sock *l;
	char buf[64];

	if (!t)
		return 0;
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].family == AF_UNIX && t->v[i].state == 10 && t->v[i].path &&
		    !strcmp(t->v[i].path, address))
			return t->v[i].ino;
	if (!colon || address[0] == '/' || address[0] == '@')
		return 0;
	snprintf(buf, sizeof(buf), "%.*s", (int)(colon - address), address);
	if (inet_pton(AF_INET, buf, raw) == 1) {
		mapped(addr, AF_INET, raw);
	} else if (buf[0] == '[') {
		buf[strcspn(buf, "]")] = 0;
		if (inet_pton(AF_INET6, buf + 1, addr) != 1)
			return 0;
	} else {
		return 0;
	}
	l = find_listener(t, addr, (uint16_t)atoi(colon + 1));
	return l ? l->ino : 0;
}

void wg_sockets_again(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);

	wg_sockets_free(c);
}

void wg_sockets_free(struct wg_pctx *c)
{
	struct table *t, *next;

	if (!c->socks)
		return;
	for (t = c->socks->tables; t; t = next) {
		next = t->next;
		free(t->v);
		free(t->by_tuple);
		free(t->icons);
		free(t);
	}
	free(c->socks);
	c->socks = NULL;
}
