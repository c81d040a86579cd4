// SPDX-License-Identifier: Apache-2.0
// cxx_throw.cc - waits inside a catch block and inside a destructor that unwinding runs.
#include <poll.h>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

namespace outer
{
template <class T> struct waits_in_destructor {
	T value;
	~waits_in_destructor() { poll(nullptr, 0, -1); }
};

__attribute__((noinline)) void throws(int depth)
{
	waits_in_destructor<std::string> w{ "x" };
	if (depth)
		throw std::runtime_error("unwinding");
}

__attribute__((noinline)) void in_catch()
{
	try {
		throw 1;
	} catch (int) {
		poll(nullptr, 0, -1);
	}
}
} // namespace outer

int main()
{
	std::thread a([] {
		try {
			outer::throws(1);
		} catch (...) {
		}
	});
	std::thread b(outer::in_catch);
	usleep(200000);
	puts("ready");
	fflush(stdout);
	a.join();
	return 0;
}
