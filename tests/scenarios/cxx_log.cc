/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: slow-not-hung (FALSE_ALARM_BUFFERED_LOG), io
 * story: the log of a C++ program is silent
 * proof: what is done with the stream is written below; a file buffer keeps 8 KiB, and the loop goes on or stops by construction
 * case: ofstream_buffered class=log-buffered|busy-cpu hung=false settle=3
 * case: ofstream_flushed class=busy-cpu|progressing hung=false settle=3
 * case: ofstream_stuck class=lock-self hung=true culprit=tid settle=2
 * case: cout_buffered class=log-buffered|busy-cpu hung=false settle=3
 * case: deleted_log class=busy-cpu|progressing|idle hung=false settle=2
 * case: rotated_log class=busy-cpu|progressing|idle hung=false settle=2
 * case: reader_stopped class=stopped hung=true culprit=pid settle=2
 * case: reader_silent class=pipe-full hung=true culprit=pid settle=2
 * case: reader_slow class=progressing|idle|busy-cpu hung=false settle=2
 */
#include <csignal>
#include <fstream>
#include <iostream>
#include <mutex>
#include <string>

#include "scenario.h"

static void step()
{
	volatile double x = 0;

	for (int i = 0; i < 3000000; i++)
		x = x + i;
}

int main(int, char **argv)
{
	std::string name = argv[1];
	std::ofstream log;

	if (nice(10) == -100)
		return 2;
	if (name.rfind("reader", 0) == 0) {
		int fds[2];

		if (pipe(fds))
			return 2;
		if (fork() == 0) {
			char text[4096];

			close(fds[1]);
			tell("culprit_pid %d", (int)getpid());
			if (name == "reader_stopped")
				raise(SIGSTOP);
			while (name == "reader_slow" && read(fds[0], text, sizeof(text)) > 0)
				usleep(20000);
			forever();
		}
		close(fds[0]);
		dup2(fds[1], 1);
		usleep(200000);
		ready();
		for (unsigned long i = 0;; i++)
			std::cout << "step " << i << std::endl;
	}
	if (name == "cout_buffered") {
		if (!freopen("train.out", "w", stdout))
			return 2;
		std::ios::sync_with_stdio(true);
		ready();
		for (unsigned long i = 0;; i++) {
			std::cout << i % 10;
			step();
		}
	}
	log.open("train.log");
	if (name != "ofstream_stuck")
		ready();
	for (unsigned long i = 0;; i++) {
		log << "step " << i % 10 << '\n';
		if (name != "ofstream_buffered" && name != "ofstream_stuck")
			log.flush();
		if (i == 5 && name == "deleted_log")
			unlink("train.log");
		if (i == 5 && name == "rotated_log" && rename("train.log", "train.log.1"))
			return 3;
		if (i == 5 && name == "ofstream_stuck") {
			std::mutex m;

			tell("culprit_tid %d", tid_now());
			ready();
			m.lock();
			m.lock();
		}
		step();
	}
}
