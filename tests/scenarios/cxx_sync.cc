/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: host-lock (HOST_LOCK_CYCLE), rendezvous
 * story: a C++ program stands still in the standard library's own waits
 * proof: each thread's code is below and is all that refers to the lock, flag, guard or promise named;
 *        the twin differs in one line. A std::future names nobody, so its cycle may end in no-waker.
 * case: promise_kept class=no-waker hung=true
 * case: future_computing class=busy-cpu|unknown hung=any
 * case: async_computing class=busy-cpu hung=false culprit=tid
 * case: async_stuck class=lock-self hung=true culprit=tid
 * case: call_once_cycle class=deadlock hung=true user=deadlock
 * case: call_once_working class=busy-cpu hung=false culprit=tid
 * case: static_guard_cycle class=deadlock hung=true
 * case: static_guard_working class=busy-cpu hung=false culprit=tid
 * case: mutex_self_with_waiter class=lock-self hung=true culprit=tid
 * case: nested_pool class=deadlock|no-waker hung=true
 * case: pool_with_room class=busy-cpu|progressing|idle hung=false
 * case: queue_three_threads class=deadlock hung=true
 * case: dtor_joins class=deadlock hung=true
 * case: cond_lost_wakeup class=no-waker hung=true
 * case: timed_waits class=idle|progressing hung=false
 */
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "scenario.h"

using namespace std::chrono_literals;

namespace {

void says_culprit()
{
	tell("culprit_tid %d", tid_now());
}

class Pool {
public:
	explicit Pool(int n)
	{
		for (int i = 0; i < n; i++)
			workers_.emplace_back([this] { serve(); });
	}

	template <class F> auto submit(F f) -> std::future<decltype(f())>
	{
		auto task = std::make_shared<std::packaged_task<decltype(f())()>>(std::move(f));
		auto result = task->get_future();
		{
			std::lock_guard<std::mutex> hold(mutex_);
			jobs_.push_back([task] { (*task)(); });
		}
		more_.notify_one();
		return result;
	}

private:
	void serve()
	{
		for (;;) {
			std::function<void()> job;
			{
				std::unique_lock<std::mutex> hold(mutex_);
				more_.wait(hold, [this] { return !jobs_.empty(); });
				job = std::move(jobs_.front());
				jobs_.pop_front();
			}
			job();
		}
	}

	std::mutex mutex_;
	std::condition_variable more_;
	std::deque<std::function<void()>> jobs_;
	std::vector<std::thread> workers_;
};

std::once_flag first, second;
bool work_inside;

void init_second();

void init_first()
{
	std::call_once(first, [] {
		std::this_thread::sleep_for(300ms);
		if (work_inside) {
			says_culprit();
			burn();
		}
		init_second();
	});
}

void init_second()
{
	std::call_once(second, [] {
		std::this_thread::sleep_for(300ms);
		init_first();
	});
}

struct Registry {
	explicit Registry(int which);
};

Registry &codecs();
Registry &devices();

Registry &codecs()
{
	static Registry r(1);
	return r;
}

Registry &devices()
{
	static Registry r(2);
	return r;
}

Registry::Registry(int which)
{
	std::this_thread::sleep_for(300ms);
	if (work_inside) {
		says_culprit();
		burn();
	}
	if (which == 1)
		devices();
	else
		codecs();
}

/* The owner of a background thread that joins it when it is destroyed. */
struct Service {
	std::mutex &shared;
	std::thread runner;

	explicit Service(std::mutex &m) : shared(m), runner([this] {
		std::this_thread::sleep_for(300ms);
		std::lock_guard<std::mutex> hold(shared);
	})
	{
	}
	~Service()
	{
		runner.join();
	}
};

} // namespace

int main(int, char **argv)
{
	std::string name = argv[1];

	if (name == "promise_kept") {
		std::promise<int> result;
		auto value = result.get_future();

		std::thread([] { std::this_thread::sleep_for(100ms); }).detach(); /* gone without a word */
		ready();
		return value.get();
	}
	if (name == "future_computing") {
		std::promise<int> result;
		auto value = result.get_future();
		std::thread worker([p = std::move(result)]() mutable {
			burn();
			p.set_value(1);
		});

		ready();
		return value.get();
	}
	if (name == "async_computing" || name == "async_stuck") { /* waits for the thread itself at the end */
		auto result = std::async(std::launch::async, [&] {
			says_culprit();
			if (name == "async_computing")
				burn();
			std::mutex m;
			m.lock();
			ready();
			m.lock();
		});

		if (name == "async_computing")
			ready();
		std::thread *joined = new std::thread([&] { result.get(); });
		joined->join();
	}
	if (name == "call_once_cycle" || name == "call_once_working") {
		work_inside = name == "call_once_working";
		std::thread a(init_first);
		std::this_thread::sleep_for(100ms);
		std::thread b(work_inside ? init_first : init_second);

		std::this_thread::sleep_for(600ms);
		ready();
		a.join();
		b.join();
	}
	if (name == "static_guard_cycle" || name == "static_guard_working") {
		work_inside = name == "static_guard_working";
		std::thread a([] { codecs(); });
		std::this_thread::sleep_for(100ms);
		std::thread b([] { work_inside ? codecs() : devices(); });

		std::this_thread::sleep_for(600ms);
		ready();
		b.join();
		a.join();
	}
	if (name == "mutex_self_with_waiter") {
		static std::mutex m;

		says_culprit();
		m.lock();
		std::thread([] {
			std::lock_guard<std::mutex> hold(m);
		}).detach();
		std::this_thread::sleep_for(200ms);
		ready();
		m.lock();
	}
	if (name == "nested_pool" || name == "pool_with_room") {
		auto *pool = new Pool(name == "nested_pool" ? 1 : 2);
		auto outer = pool->submit([pool] {
			auto inner = pool->submit([] {
				std::this_thread::sleep_for(30ms);
				return 1;
			});
			return inner.get();
		});

		if (name == "nested_pool") {
			std::this_thread::sleep_for(300ms);
			ready();
			return outer.get();
		}
		ready();
		outer.get();
		for (;;)
			pool->submit([pool] { return pool->submit([] {
				std::this_thread::sleep_for(30ms);
				return 1;
			}).get(); }).get();
	}
	if (name == "queue_three_threads") {
		static std::mutex in, middle, out;
		auto takes = [](std::mutex &have, std::mutex &want) {
			return std::thread([&have, &want] {
				std::unique_lock<std::mutex> mine(have);
				std::this_thread::sleep_for(300ms);
				std::unique_lock<std::mutex> next(want);
			});
		};
		std::thread a = takes(in, middle), b = takes(middle, out), c = takes(out, in);

		std::this_thread::sleep_for(500ms);
		ready();
		a.join();
	}
	if (name == "dtor_joins") { /* holds what the thread needs while its destructor joins that thread */
		static std::mutex m;
		std::lock_guard<std::mutex> hold(m);
		Service service(m);

		ready();
	}
	if (name == "cond_lost_wakeup") {
		std::mutex m;
		std::condition_variable c;
		std::thread producer([&] { c.notify_one(); }); /* before anybody waits */

		producer.join();
		std::unique_lock<std::mutex> hold(m);
		ready();
		c.wait(hold);
	}
	if (name == "timed_waits") {
		std::mutex m;
		std::condition_variable c;
		std::unique_lock<std::mutex> hold(m);

		ready();
		for (;;)
			c.wait_for(hold, 200ms);
	}
	return 0;
}
