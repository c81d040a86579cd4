// SPDX-License-Identifier: Apache-2.0
// cxx_streams.cc - bytes in std::cout and in std::ofstreams on heap and stacks: argv[1] a directory.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2)
		return 1;
	const std::string dir = argv[1];
	std::ios::sync_with_stdio(false);
	std::ofstream local(dir + "/local");
	local << "12345678";
	auto *heap = new std::ofstream(dir + "/heap");
	*heap << "1234";
	std::thread t([&] {
		std::ofstream own(dir + "/own");
		own << "0123456789";
		pause();
	});
	usleep(200000);
	printf("ready\n");
	fflush(stdout);
	std::cout << "hello";
	t.join();
	return 0;
}
