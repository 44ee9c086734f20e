"""Several Python threads at once, torch's thread settings, one OpenMP runtime, and fork."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .common import counting, run_python, stock, values

THREADS = 8
ROUNDS = 25

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def in_threads(work: Callable[[int], None]) -> None:
    """Runs ``work(0)`` … ``work(7)`` concurrently from one start; re-raises an error of any."""
    barrier = threading.Barrier(THREADS)

    def start(number: int) -> None:
        barrier.wait(timeout=60)
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(start, number) for number in range(THREADS)]:
            future.result(timeout=120)


def eager_work(number: int) -> Callable[[], Tensor]:
    """A convolution and a linear layer whose shapes differ from thread to thread."""
    image, kernel = values(1, 4, 8 + number, 9, seed=1), values(6, 4, 3, 3, seed=2)
    weight = values(16 + number, 7, seed=3)
    return lambda: F.linear(F.conv2d(image, kernel), weight)


def test_eager_operations_in_eight_threads_are_right() -> None:
    with stock():
        want = [eager_work(number)() for number in range(THREADS)]
    with counting() as one_by_one:
        for number in range(THREADS):
            eager_work(number)()

    def work(number: int) -> None:
        call = eager_work(number)
        for _ in range(ROUNDS):
            torch.testing.assert_close(call(), want[number], rtol=1e-5, atol=1e-4)

    with counting() as calls:
        in_threads(work)
    assert one_by_one
    assert calls == {op: ROUNDS * count for op, count in one_by_one.items()}, (
        "calls were miscounted"
    )


@pytest.mark.parametrize("budget", ["0", "0.05"])
def test_one_frozen_module_in_eight_threads_is_right(
    budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a budget, sizes after the fourth are built anew while other threads run them."""
    monkeypatch.setenv("ZENDNN_TUNING_BUDGET", budget)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(2)
    ).eval()
    inputs = [values(1 + number % 3, 3, 8 + number, 9, seed=number) for number in range(THREADS)]
    module = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(net)))
    with torch.no_grad(), stock():
        want = [net(x) for x in inputs]

    def work(number: int) -> None:
        with torch.no_grad():  # this switch is per thread
            for turn in range(2 * ROUNDS):
                which = (number + turn) % THREADS  # each thread calls all sizes
                torch.testing.assert_close(module(inputs[which]), want[which], rtol=1e-5, atol=1e-5)

    with counting() as calls:
        in_threads(work)
    assert calls


def test_gradients_in_eight_threads_are_right() -> None:
    weight = values(12, 20, seed=1)
    inputs = [values(5 + number, 20, seed=number) for number in range(THREADS)]

    def gradient(number: int) -> Tensor:
        leaf = weight.clone().requires_grad_()
        F.linear(inputs[number], leaf).square().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    with stock():
        want = [gradient(number) for number in range(THREADS)]

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            torch.testing.assert_close(gradient(number), want[number], rtol=1e-4, atol=1e-3)

    in_threads(work)


def test_switching_while_others_compute_gives_right_results() -> None:
    with stock():
        want = [eager_work(number)() for number in range(THREADS)]

    def work(number: int) -> None:
        call = eager_work(number)
        for turn in range(ROUNDS):
            if number == 0:
                torch.backends.zendnn.set_flags(turn % 2 == 0)
            torch.testing.assert_close(call(), want[number], rtol=1e-5, atol=1e-4)

    in_threads(work)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_gives_right_results(threads: int) -> None:
    a, b = values(129, 300, seed=1), values(300, 67, seed=2)
    image, kernel = values(3, 17, 23, 19, seed=3), values(33, 17, 3, 3, seed=4)
    with stock():
        want = [torch.mm(a, b), F.conv2d(image, kernel)]
    torch.set_num_threads(threads)
    with counting() as calls:
        got = [torch.mm(a, b), F.conv2d(image, kernel)]
    assert calls
    for our, their in zip(got, want, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-5, atol=2e-4)


def test_one_thread_means_one_thread() -> None:
    """CPU time divided by wall time cannot exceed the number of running threads."""
    code = """
import time, torch, torch.nn.functional as F
torch.set_num_threads(1)
a, image, kernel = torch.ones(700, 700), torch.ones(4, 64, 40, 40), torch.ones(64, 64, 3, 3)
torch.mm(a, a), F.conv2d(image, kernel)
wall, cpu = time.perf_counter(), time.process_time()
while time.perf_counter() - wall < 1:
    torch.mm(a, a), F.conv2d(image, kernel)
print((time.process_time() - cpu) / (time.perf_counter() - wall))
print(sum(torch.backends.zendnn.counters().values()))
"""
    ratio, calls = run_python(code).split()
    assert float(ratio) < 1.2
    assert int(calls) > 2


#: Work that is too small for eight threads.
SMALL = {
    "product": "a, b = torch.ones(32, 64), torch.ones(64, 192); call = lambda: torch.mm(a, b)",
    "dot products": "a, b = torch.ones(16, 256), torch.ones(128, 256); call = lambda: a @ b.t()",
    "attention": """
q, k = torch.ones(1, 4, 1, 64), torch.ones(1, 4, 2048, 64)
call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, k)
""",
    "gradients of attention": """
q, k = (torch.ones(1, 3, 256, 64, requires_grad=True) for _ in range(2))
def call():
    torch.nn.functional.scaled_dot_product_attention(q, k, k).square().sum().backward()
""",
}


@pytest.mark.parametrize("work", SMALL)
def test_work_for_few_threads_does_not_end_the_other_threads(work: str) -> None:
    """libgomp ends the threads outside a smaller team, which costs more than such work."""
    code = f"""
import os, torch
torch.set_num_threads(8)
torch.set_grad_enabled({"gradients" in work})
large = torch.ones(1 << 20)
{SMALL[work]}
call()
torch.backends.zendnn.reset_counters()
seen = set()
for _ in range(20):
    torch.sigmoid(large)
    seen.update(os.listdir("/proc/self/task"))
    call()
    seen.update(os.listdir("/proc/self/task"))
print(len(seen), sum(torch.backends.zendnn.counters().values()))
"""
    threads, calls = map(int, run_python(code).split())
    assert calls >= 20
    assert threads <= 2 * 8  # autograd has its own


def test_one_openmp_runtime_is_loaded() -> None:
    code = """
import torch
torch.mm(torch.ones(200, 200), torch.ones(200, 200))
with open('/proc/self/maps') as maps:
    paths = {line.split()[-1] for line in maps if '.so' in line}
print(sorted(p for p in paths if any(n in p.split('/')[-1] for n in ('gomp', 'iomp', 'libomp'))))
"""
    with_zendnn, without = run_python(code), run_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert with_zendnn == without
    assert with_zendnn.count(".so") <= 1


def test_a_forked_worker_computes_on_zendnn() -> None:
    """As a data loader's workers: forked after use, with one thread each."""
    code = """
import multiprocessing, torch, torch.nn.functional as F
def work(queue):
    torch.set_num_threads(1)
    torch.backends.zendnn.reset_counters()
    out = F.conv2d(torch.ones(1, 8, 16, 16), torch.ones(8, 8, 3, 3))
    queue.put((out.sum().item(), torch.backends.zendnn.counters()['convolution']))
F.conv2d(torch.ones(1, 32, 64, 64), torch.ones(32, 32, 3, 3))
context = multiprocessing.get_context('fork')
queue = context.Queue()
child = context.Process(target=work, args=(queue,))
child.start()
print(*queue.get(timeout=60))
child.join(60)
print(child.exitcode)
"""
    assert run_python(code).split() == [str(8 * 9 * 8 * 14.0**2), "1", "0"]


def test_a_fork_has_gradients_after_gradients_in_its_parent() -> None:
    code = """
import multiprocessing, torch, torch.nn.functional as F
def gradient(threads):
    torch.set_num_threads(threads)
    x = torch.ones(1, 8, 16, 16, requires_grad=True)
    F.conv2d(x, torch.ones(8, 8, 3, 3)).sum().backward()
    return x.grad[0, 0, 8, 8].item()
gradient(2)
with multiprocessing.get_context('fork').Pool(1) as pool:
    print(*pool.map(gradient, [1]))
"""
    assert run_python(code).split() == ["72.0"]


def test_a_blocked_tensor_has_gradients_after_those_of_plain_ones() -> None:
    """The autograd engine started without a device thread, since there was no device."""
    code = """
import torch, torch.nn.functional as F
x, weight = torch.rand(1, 8, 9, 9, requires_grad=True), torch.rand(8, 8, 3, 3)
(plain,) = torch.autograd.grad(F.conv2d(x, weight).square().sum(), x)
y = F.conv2d(x.to_zendnn(), weight).to_dense()
(blocked,) = torch.autograd.grad(y.square().sum(), x)
torch.testing.assert_close(blocked, plain)
"""
    assert run_python(code) == ""
