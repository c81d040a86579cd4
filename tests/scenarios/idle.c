/* scenario
 * section: slow-not-hung
 * story: a process does nothing: is it hung, or waiting by design?
 * proof: the program is written to wait for a request, a timer or a signal
 * case: accept class=idle hung=false
 * case: epoll class=idle hung=false
 * case: sleep class=idle hung=false
 * case: sleep_loop class=idle|progressing hung=false
 * case: pause class=idle|unknown hung=false
 * case: pool class=idle hung=false
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "scenario.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

static void *pool_worker(void *arg)
{
	pthread_mutex_lock(&lock);
	for (;;)
		pthread_cond_wait(&work, &lock);
	return arg;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct epoll_event e = { .events = EPOLLIN };
	int s = socket(AF_INET, SOCK_STREAM, 0), ep;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(s, (void *)&a, sizeof(a)) || listen(s, 8))
		return 1;
	if (is(argc, argv, "pool"))
		for (int i = 0; i < 16; i++)
			spawn(pool_worker, NULL);
	ready();
	if (is(argc, argv, "sleep"))
		sleep(100000);
	while (is(argc, argv, "sleep_loop"))
		usleep(50000);
	if (is(argc, argv, "pause"))
		forever();
	if (is(argc, argv, "epoll") || is(argc, argv, "pool")) {
		ep = epoll_create1(0);
		epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
		epoll_wait(ep, &e, 1, -1);
	}
	accept(s, NULL, NULL);
	return 0;
}
