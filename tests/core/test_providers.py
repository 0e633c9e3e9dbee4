"""CPU and memory providers: hints, allocation and release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.core.errors import AllocationError
from devicemanager.core.ids import ContainerName, PodUid, ResourceName
from devicemanager.core.pods import Container, Pod, effective_request
from devicemanager.core.providers.cpu import CpuProvider, exclusive_cpus
from devicemanager.core.providers.memory import MemoryProvider
from devicemanager.core.providers.provider import (
    CpusAndMemory,
    HintProvider,
    MemoryBlock,
    is_guaranteed,
    makes_reusable,
)
from devicemanager.core.topology import Hint, NumaTopology

TWO = NumaTopology.of([0, 1])
GIB = 1 << 30


def container(
    name: str, cpus: float = 1, memory: int = GIB, restartable: bool = False, pages: int = 0
) -> Container:
    limits = {"cpu": int(cpus * 1000), "memory": memory, "hugepages-2Mi": pages}
    return Container(
        ContainerName(name),
        {ResourceName(key): value for key, value in limits.items() if value},
        restartable=restartable,
    )


def pod(*containers: Container, uid: str = "p", init: tuple[Container, ...] = ()) -> Pod:
    return Pod(PodUid(uid), uid, "default", containers, init)


def cpus(reserved: tuple[int, ...] = ()) -> CpuProvider:
    return CpuProvider.of(TWO, {0: range(4), 1: range(4, 8)}, reserved)


def memory(gib: int = 4) -> MemoryProvider:
    return MemoryProvider.of(TWO, {"memory": {0: gib * GIB, 1: gib * GIB}})


def shown(provider: HintProvider, uid: str = "p", name: str = "c") -> CpusAndMemory:
    return provider.allocated(PodUid(uid), ContainerName(name))


class TestPods:
    def test_guaranteed_requires_equal_requests_in_every_container(self) -> None:
        good = container("c")
        burst = Container(good.name, good.limits, {ResourceName("cpu"): 500})
        best_effort = Container(ContainerName("x"))
        assert is_guaranteed(pod(good, init=(good,)))
        assert is_guaranteed(pod(container("tiny", 0.001, memory=1)))
        assert not is_guaranteed(pod(burst))
        assert not is_guaranteed(pod(good, best_effort))
        assert not is_guaranteed(pod(good, init=(burst,)))

    def test_fractions_and_other_classes_get_no_exclusive_cpus(self) -> None:
        assert exclusive_cpus(pod(container("c", 2)), container("c", 2)) == 2
        assert exclusive_cpus(pod(container("c", 1.5)), container("c", 1.5)) == 0
        assert exclusive_cpus(pod(container("c", 2, memory=0)), container("c", 2)) == 0

    def test_only_ordinary_init_containers_are_reusable(self) -> None:
        init, sidecar, main = container("i"), container("s", restartable=True), container("c")
        one = pod(main, init=(init, sidecar))
        assert [makes_reusable(one, c) for c in (init, sidecar, main)] == [True, False, False]

    @pytest.mark.parametrize(
        ("init", "expected"),
        [((), 3), (((5, False),), 5), (((1, True), (3, False)), 4), (((1, True), (1, True)), 5)],
    )
    def test_effective_request_is_the_largest_at_any_time(
        self, init: tuple[tuple[int, bool], ...], expected: int
    ) -> None:
        inits = tuple(container(f"i{n}", n, restartable=r) for n, r in init)
        one = pod(container("a", 1), container("b", 2), init=inits)
        assert effective_request(one, lambda c: c.limits[ResourceName("cpu")] // 1000) == expected


class TestCpus:
    def test_hints_count_free_cpus_per_node(self) -> None:
        main = container("c", 3)
        provider = cpus(reserved=(0,))
        both = (Hint(1, True), Hint(2, True), Hint(3, False))
        assert provider.hints(pod(main), main) == {"cpu": both}
        after = provider.allocate(pod(main), main, 1)
        other = pod(main, uid="q")
        assert after.hints(other, main) == {"cpu": both[1:]}
        assert after.pod_hints(other) == {"cpu": both[1:]}

    def test_no_request_gives_no_hints_and_no_change(self) -> None:
        main = container("c", 0.5)
        provider = cpus()
        assert provider.hints(pod(main), main) == provider.pod_hints(pod(main)) == {}
        assert provider.allocate(pod(main), main, None) is provider

    def test_cpus_of_the_affinity_are_allocated_first(self) -> None:
        main = container("c", 5)
        after = cpus().allocate(pod(main), main, 2)
        assert shown(after) == CpusAndMemory(cpu_ids=(0, 4, 5, 6, 7))
        assert after.pod_allocated(PodUid("p")) == shown(after)

    def test_restarted_container_keeps_its_cpus(self) -> None:
        main = container("c", 2)
        after = cpus().allocate(pod(main), main, 2)
        assert after.allocate(pod(main), main, 1) is after
        assert after.hints(pod(main), main) == {"cpu": (Hint(2, True), Hint(3, False))}
        assert after.pod_hints(pod(main)) == after.hints(pod(main), main)
        more = container("c", 3)
        assert after.hints(pod(more), more) == {"cpu": ()}

    def test_pod_hints_count_cpus_of_its_containers(self) -> None:
        both = pod(container("c", 2), container("d", 2))
        after = cpus().allocate(both, both.containers[0], 1)
        assert after.pod_hints(both) == {"cpu": (Hint(1, True), Hint(3, False))}

    @pytest.mark.parametrize(
        ("affinity", "text"),
        [(None, "requested=9, available=8"), (1, "requested=5, available=4")],
    )
    def test_too_many_cpus_are_rejected_with_the_kubelets_message(
        self, affinity: int | None, text: str
    ) -> None:
        main = container("c", 9)
        with pytest.raises(AllocationError) as caught:
            cpus().allocate(pod(main), main, affinity)
        assert str(caught.value) == f"not enough cpus available to satisfy request: {text}"

    def test_cpus_of_init_containers_are_reusable_but_not_of_sidecars(self) -> None:
        init, sidecar = container("i", 3), container("s", 1, restartable=True)
        main = container("c", 3)
        one = pod(main, init=(init, sidecar))
        provider = cpus()
        for step in (init, sidecar, main):
            provider = provider.allocate(one, step, None)
        assert shown(provider, name="i").cpu_ids == (0, 1, 2)
        assert shown(provider, name="s").cpu_ids == (0,)
        assert shown(provider, name="c").cpu_ids == (1, 2, 3)
        assert provider.free_cpus == 0b11110000

    def test_hints_include_cpus_of_the_init_container(self) -> None:
        init, main = container("i", 2), container("c", 2)
        one = pod(main, init=(init,))
        after = cpus().allocate(one, init, 2)
        assert after.hints(one, main) == {"cpu": (Hint(2, True), Hint(3, False))}

    def test_release_frees_all_cpus(self) -> None:
        main = container("c", 2)
        provider = cpus()
        assert provider.allocate(pod(main), main, None).release(PodUid("p")) == provider
        assert provider.release(PodUid("stranger")) is provider
        assert cpus(reserved=(0, 7)).allocatable() == CpusAndMemory(cpu_ids=(1, 2, 3, 4, 5, 6))


class TestMemory:
    def test_memory_hints_are_nodes_where_all_types_fit(self) -> None:
        pages = "hugepages-2Mi"
        provider = MemoryProvider.of(
            TWO, {"memory": {0: 4 * GIB, 1: 4 * GIB}, pages: {0: 0, 1: GIB}}
        )
        main = container("c", 1, 2 * GIB, pages=GIB)
        only_second = (Hint(2, True), Hint(3, False))
        expected = {pages: only_second, "memory": only_second}
        assert provider.hints(pod(main), main) == provider.pod_hints(pod(main)) == expected

    def test_preferred_size_ignores_what_is_in_use(self) -> None:
        big, main = container("c", 1, 3 * GIB), container("c", 1, 2 * GIB)
        provider = memory().allocate(pod(big), big, 1)
        provider = provider.allocate(pod(big, uid="q"), big, 2)
        assert provider.hints(pod(main, uid="r"), main) == {"memory": (Hint(3, False),)}

    def test_blocks_have_the_nodes_of_the_affinity(self) -> None:
        main = container("c", 1, 5 * GIB)
        after = memory().allocate(pod(main), main, 3)
        assert shown(after).memory == (MemoryBlock("memory", 5 * GIB, (0, 1)),)
        assert after.free() == {("memory", 0): 0, ("memory", 1): 3 * GIB}
        assert after.hints(pod(main), main) == {"memory": (Hint(3, True),)}
        assert after.pod_hints(pod(main)) == {"memory": (Hint(3, True),)}

    def test_too_small_affinity_is_extended(self) -> None:
        main = container("c", 1, 5 * GIB)
        assert memory().allocate(pod(main), main, 1).pod_allocated(PodUid("p")).memory[0].nodes == (
            0,
            1,
        )

    def test_without_affinity_the_best_hint_is_used(self) -> None:
        main = container("c", 1, GIB)
        assert shown(memory().allocate(pod(main), main, None)).memory[0].nodes == (0,)

    @pytest.mark.parametrize(
        ("affinity", "text"),
        [
            (
                None,
                r"\[memorymanager\] failed to get the default NUMA affinity, "
                r"no NUMA nodes with enough memory is",
            ),
            (1, r"\[memorymanager\] failed to find NUMA nodes to extend the current topology hint"),
        ],
    )
    def test_too_much_memory_is_rejected_with_the_kubelets_message(
        self, affinity: int | None, text: str
    ) -> None:
        main = container("c", 1, 9 * GIB)
        with pytest.raises(AllocationError, match="^" + text):
            memory().allocate(pod(main), main, affinity)
        # Without hints the topology policy admits, and Allocate rejects.
        assert memory().hints(pod(main), main) == memory().pod_hints(pod(main)) == {}

    def test_memory_of_init_containers_is_reusable(self) -> None:
        init, main = container("i", 1, 3 * GIB), container("c", 1, 4 * GIB)
        one = pod(main, init=(init,))
        after = memory().allocate(one, init, 1)
        assert after.hints(one, main) == {"memory": (Hint(1, True), Hint(2, True), Hint(3, False))}
        after = after.allocate(one, main, 1)
        assert after.free() == {("memory", 0): 0, ("memory", 1): 4 * GIB}

    def test_node_without_a_memory_type(self) -> None:
        provider = MemoryProvider.of(TWO, {"memory": {0: GIB, 1: GIB}, "hugepages-2Mi": {1: GIB}})
        main = container("c", 1, 2 * GIB, pages=GIB)
        after = provider.allocate(pod(main), main, 3)
        assert set(after.free().values()) == {0}
        assert after.release(PodUid("p")) == provider

    def test_only_guaranteed_pods_get_memory(self) -> None:
        main = container("c", 0, GIB)
        provider = memory()
        assert provider.hints(pod(main), main) == {}
        assert provider.allocate(pod(main), main, None) is provider

    def test_allocatable_lists_each_type_and_node(self) -> None:
        assert memory(1).allocatable().memory == (
            MemoryBlock("memory", GIB, (0,)),
            MemoryBlock("memory", GIB, (1,)),
        )


class TestTogether:
    @given(
        st.lists(
            st.tuples(
                st.integers(1, 5),
                st.integers(1, 5),
                st.sampled_from([None, 1, 2, 3]),
                st.booleans(),
            ),
            max_size=6,
        )
    )
    def test_random_pods_share_nothing_and_free_everything(
        self, wishes: list[tuple[int, int, int | None, bool]]
    ) -> None:
        cpu, mem = cpus(), memory()
        for number, (count, gib, affinity, leaves) in enumerate(wishes):
            main = container("c", count, gib * GIB)
            one = pod(main, uid=f"p{number}")
            try:
                cpu_after = cpu.allocate(one, main, affinity)
                cpu, mem = cpu_after, mem.allocate(one, main, affinity)
            except AllocationError:
                continue  # providers are values: not storing the new one undoes the allocation
            if leaves:
                cpu, mem = cpu.release(one.uid), mem.release(one.uid)
        uids = [PodUid(f"p{number}") for number in range(len(wishes))]
        allocated = [id_ for uid in uids for id_ in cpu.pod_allocated(uid).cpu_ids]
        assert len(allocated) == len(set(allocated)) == 8 - cpu.free_cpus.bit_count()
        in_blocks = sum(block.size for uid in uids for block in mem.pod_allocated(uid).memory)
        assert sum(mem.free().values()) == 8 * GIB - in_blocks
        assert min(mem.free().values()) >= 0
        for uid in uids:
            cpu, mem = cpu.release(uid), mem.release(uid)
        assert (cpu, mem) == (cpus(), memory())
