"""The fixtures, in separate pytest sessions."""

import re

import pytest

from tests.sessions import NO_SUITE_PLUGINS

pytest_plugins = ["pytester"]


@pytest.fixture
def session(pytester):
    """Function that runs a test module in a separate session, with warnings as errors."""

    def run(source, *arguments):
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_subprocess("-Werror", *NO_SUITE_PLUGINS, *arguments)

    return run


@pytest.fixture
def passes(session):
    def run(source, **outcomes):
        result = session(source)
        result.assert_outcomes(**outcomes)
        return result

    return run


def test_kubelet_with_a_plugin(passes):
    passes(
        """
        from devicemanager.testing import pod_manifest

        def test_a_pod_gets_its_devices(mock_kubelet, simulated_plugin):
            plugin = simulated_plugin("vendor.com/gpu", 4, env_prefix="GPU")
            admission = mock_kubelet.admit(pod_manifest("a", {"vendor.com/gpu": 2}))
            main = admission.containers["main"]
            assert main.devices == {"vendor.com/gpu": ["gpu-mock-0", "gpu-mock-1"]}
            assert main.run_options.envs == {"GPU_0": "/dev/0", "GPU_1": "/dev/1"}
            assert [call.rpc for call in plugin.calls].count("Allocate") == 1

        def test_the_next_test_has_a_fresh_one(mock_kubelet):
            assert mock_kubelet.capacity() == {}
            assert mock_kubelet.pods() == {}

        def test_a_plugin_without_devices(mock_kubelet, simulated_plugin):
            simulated_plugin("vendor.com/nic", 0)
            assert mock_kubelet.capacity() == {"vendor.com/nic": 0}

        def test_other_fixtures(plugin_process, replay_plugin, pod_resources_server):
            plugin_process(["true"]).wait()
            pod_resources_server({"pod_resources": [{"name": "a"}]})

        def test_no_fixture_imports_kubernetes():
            import sys

            assert "kubernetes" not in sys.modules
        """,
        passed=5,
    )


def test_claims_on_simulated_pools(passes):
    passes(
        """
        from devicemanager.testing import pod_manifest

        CLAIM = {
            "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
            "kind": "DeviceClaim",
            "metadata": {"name": "gpu"},
            "spec": {"claims": [{"deviceClass": "gpu"}]},
        }

        def test_a_pod_gets_its_claim(mock_kubelet, simulated_pools):
            simulated_pools(gpu=1)
            mock_kubelet.claim(CLAIM)
            admission = mock_kubelet.admit(pod_manifest("a", claims=["gpu"]))
            assert admission.admitted
            names = admission.containers["main"].run_options.cdi_devices
            assert names[0] == "k8s.gpu.example.com/device=common"
            (view,) = mock_kubelet.claims.view()
            assert view.phase == "Reserved"
        """,
        passed=1,
    )


def test_settings_can_be_overridden(passes):
    passes(
        """
        import pytest
        from devicemanager import Settings
        from devicemanager.testing import pod_manifest

        def test_defaults(mock_kubelet):
            assert mock_kubelet.settings == Settings(durability="process")

        class TestStrict:
            @pytest.fixture
            def mock_kubelet_settings(self):
                return Settings(strict=True)

            def test_strict(self, mock_kubelet):
                admission = mock_kubelet.admit(pod_manifest("a", {"vendor.com/gpu": 1}))
                assert admission.reason == "UnexpectedAdmissionError"

            def test_for_one_kubelet(self, make_mock_kubelet):
                assert make_mock_kubelet(Settings(grace_period=1)).settings.grace_period == 1
                assert make_mock_kubelet().settings.strict
        """,
        passed=3,
    )


def test_several_kubelets_and_kubelets_started_by_the_test(passes):
    passes(
        """
        from devicemanager import ManualClock
        from devicemanager.testing import pod_manifest

        GPU = "vendor.com/gpu"

        def test_two_nodes(mock_kubelet, make_mock_kubelet, simulated_plugin):
            other = make_mock_kubelet()
            simulated_plugin(GPU, 1)
            simulated_plugin(GPU, 3, kubelet=other)
            assert mock_kubelet.capacity() == {GPU: 1}
            assert other.capacity() == {GPU: 3}

        def test_stopped_and_started(mock_kubelet, simulated_plugin):
            simulated_plugin(GPU, 2)
            mock_kubelet.admit(pod_manifest("a", {GPU: 1}, uid="a"))
            mock_kubelet.stop()
            assert mock_kubelet.checkpoint_path.exists()
            mock_kubelet.start()
            mock_kubelet.wait_for_resource(GPU, 2)
            assert mock_kubelet.devices("a") == {"main": {GPU: ["gpu-mock-0"]}}

        def test_another_kubelet_on_the_directory(make_mock_kubelet):
            clock = ManualClock()
            first = make_mock_kubelet(clock=clock, start=False)
            assert not first.plugin_socket.exists()
            first.start()
            first.stop()
            second = make_mock_kubelet(root=first.root)
            assert first.clock is clock and second.plugin_socket == first.plugin_socket
        """,
        passed=3,
    )


def test_no_resources_are_left_over(passes, pytester):
    passes(
        """
        import atexit, os, threading
        from pathlib import Path

        import pytest

        from devicemanager.testing import pod_manifest

        ROUNDS = 8
        resources, roots, threads, settings = [], [], [], []

        @pytest.fixture(autouse=True)
        def count():
            yield  # set up first, so it counts after all other teardowns
            # This thread of gRPC ends by itself shortly after Server.stop() has returned.
            for thread in threading.enumerate():
                if "cancel_all_calls_after_grace" in thread.name:
                    thread.join(10)
            resources.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
            threads.append(set(os.listdir("/proc/self/task")))

        @pytest.mark.parametrize("round", range(ROUNDS))
        def test_use(mock_kubelet, simulated_plugin, round):
            simulated_plugin("vendor.com/gpu", 2)
            mock_kubelet.admit(pod_manifest("a", {"vendor.com/gpu": 1}))
            mock_kubelet.restart()
            roots.append(mock_kubelet.root)
            settings.append(mock_kubelet.settings)

        def others():
            running = [t for t in threading.enumerate() if t.name != "MainThread"]
            return [t.name if type(t) is threading.Thread else type(t).__name__ for t in running]

        atexit.register(lambda: Path("left").write_text(" ".join(others())))

        def test_afterwards():
            assert len(set(roots)) == len(resources) == ROUNDS
            assert not any(root.exists() for root in roots)
            # Settings are created and validated once.
            assert all(each is settings[0] for each in settings)
            # gRPC creates what it keeps for the whole process in the first tests.
            first, last = resources[1], resources[-1]
            assert last[0] <= first[0] and last[1] <= first[1], resources
            # Two directory observers and an event loop stay idle until the end of the session.
            assert others().count("InotifyObserver") <= 2
            assert others().count("registration") == 1
            assert set(others()) <= {"InotifyObserver", "InotifyFD", "registration"}
            # gRPC's own threads are not restarted for each test. (One of them never is.)
            ours = {str(thread.native_id) for thread in threading.enumerate()}
            assert len(set.intersection(*threads[1:]) - ours) > 1
        """,
        passed=9,
    )
    assert (pytester.path / "left").read_text() == ""


def test_error_on_a_server_thread_fails_the_test(session):
    result = session(
        """
        def fail(kubelet, simulated_plugin, text):
            def update(*_):
                raise ZeroDivisionError(text)
            kubelet.manager.plugins.update = update
            simulated_plugin(timeout=None, kubelet=kubelet)
            kubelet.wait_for(lambda: kubelet.events.recent("server-error"))

        def test_that_would_pass(mock_kubelet, simulated_plugin):
            fail(mock_kubelet, simulated_plugin, "planted")

        def test_that_checks_by_itself(mock_kubelet, simulated_plugin):
            fail(mock_kubelet, simulated_plugin, "first")
            try:
                mock_kubelet.check()
            except ZeroDivisionError:
                pass

        def test_of_two_kubelets(make_mock_kubelet, simulated_plugin):
            make_mock_kubelet()
            fail(make_mock_kubelet(), simulated_plugin, "second")

        def test_while_it_stops(mock_kubelet):
            def fail_late(event):
                if event.kind == "stopped":  # after the last server thread has ended
                    mock_kubelet._failed(ZeroDivisionError("late"))
            mock_kubelet.events.subscribe(fail_late)
        """,
        "-rA",
    )
    # The kubelet of the last test fails only after the test has passed.
    result.assert_outcomes(passed=2, failed=2, errors=1)
    result.stdout.fnmatch_lines(["*ZeroDivisionError: planted", "*mock kubelet events*"])
    result.stdout.fnmatch_lines(
        [
            "ERROR *test_while_it_stops*ZeroDivisionError: late",
            "FAILED *test_of_two_kubelets*ZeroDivisionError: second",
        ]
    )


def test_failure_report_has_the_events(session):
    result = session(
        """
        import pytest

        from devicemanager.testing import pod_manifest

        def test_a_wait_that_fails(mock_kubelet, simulated_plugin):
            simulated_plugin("vendor.com/gpu", 2)
            mock_kubelet.wait_for_resource("vendor.com/gpu", 3, timeout=0.01)

        def test_a_wrong_expectation(mock_kubelet, simulated_plugin):
            simulated_plugin("vendor.com/nic", 1)
            assert mock_kubelet.admit(pod_manifest("a", {"vendor.com/nic": 2})).admitted

        @pytest.fixture
        def ready(mock_kubelet):
            mock_kubelet.wait_for_resource("vendor.com/tpu", timeout=0.01)

        def test_a_setup_that_fails(ready):
            pass

        def test_that_uses_no_kubelet():
            assert False

        def test_that_passes(mock_kubelet):
            pass
        """
    )
    result.assert_outcomes(failed=3, passed=1, errors=1)
    text = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "*WaitTimeout: waited 0.01 s for 3 allocatable devices of vendor.com/gpu; what did "
            "happen:",
            "* devices-updated: vendor.com/gpu: 2 devices, 2 healthy*",
            "* allocatable now: {'vendor.com/gpu': 2}",
        ]
    )
    # Errors raised on purpose are shown at the line of the test or the fixture.
    assert re.findall(r"\n(\S+\.py):\d+: (\w+)", text) == [
        ("test_it.py", "WaitTimeout"),
        ("test_it.py", "WaitTimeout"),
        ("test_it.py", "AssertionError"),
        ("test_it.py", "AssertionError"),
    ]
    assert len(re.findall("-+ mock kubelet events -+", text)) == 3
    assert re.search(r"\d\.\d{3} s   registered: vendor.com/nic: plugin", text)
    assert re.search(r"\d\.\d{3} s ! rejected: pod default/a rejected: ", text)


def test_unexpected_error_is_shown_where_it_was_raised(session):
    source = """
        from devicemanager import Settings

        def test_an_unknown_version(mock_kubelet):
            Settings(kubelet_version="1.99")

        def test_a_bug(mock_kubelet, monkeypatch):
            monkeypatch.setattr(mock_kubelet._waits, "condition", None)
            mock_kubelet.wait_for(lambda: True)
        """
    places = r"\n(?:\S*/)?(\w+\.py):\d+: (\w+)"
    frames = re.findall(places, session(source).stdout.str())
    assert frames == [("test_it.py", "VersionError"), ("mock.py", "TypeError")]
    frames = re.findall(places, session(source, "--full-trace").stdout.str())
    assert frames == [("version.py", "VersionError"), ("mock.py", "TypeError")]


def test_mark_without_effect_fails_the_test(session):
    result = session(
        """
        import pytest

        @pytest.mark.mock_kubelet(strict=True)
        def test_of_the_module(module_mock_kubelet):
            pass

        @pytest.mark.mock_kubelet(strict=True)
        def test_of_the_session(session_mock_kubelet):
            pass

        @pytest.mark.mock_kubelet(strict=True)
        def test_of_two(session_mock_kubelet, mock_kubelet):
            assert mock_kubelet.settings.strict

        @pytest.mark.mock_kubelet(strict=True)
        class TestMixed:
            def test_one(self, mock_kubelet):
                assert mock_kubelet.settings.strict

            def test_other(self, session_mock_kubelet):
                assert not session_mock_kubelet.settings.strict
        """
    )
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(
        [
            f"the mark mock_kubelet does not apply to {name}_mock_kubelet, which other tests "
            f"also use: use the fixture mock_kubelet, or override {name}_mock_kubelet_settings"
            for name in ("module", "session")
        ]
    )


def test_session_without_a_kubelet_imports_none(passes):
    passes(
        """
        import sys

        def test_that_uses_no_fixture(request):
            assert request.config.pluginmanager.hasplugin("devicemanager")
            heavy = {"attr", "grpc", "google.protobuf", "yaml", "devicemanager.kubelet.mock"}
            assert heavy.isdisjoint(sys.modules)
        """,
        passed=1,
    )


def test_fixtures_have_docstrings(session):
    result = session("def test(): pass", "--fixtures")
    for name in ("mock_kubelet", "mock_kubelet_settings", "make_mock_kubelet", "simulated_plugin"):
        result.stdout.re_match_lines([rf"{name} -- .*pytest_plugin\.py"])
    result.stdout.no_fnmatch_line("*no docstring available*devicemanager*")


def test_fixtures_do_not_wait_for_the_disk(mock_kubelet):
    assert mock_kubelet.settings.durability == "process"


def test_shared_kubelets_marks_and_failures(session):
    """In one session, because each session takes a second."""
    result = session(
        """
        import pytest
        from devicemanager import Settings
        from devicemanager.claims.simulated import SimulatedHardware, publish_hardware
        from devicemanager.plugin.simulated import SimulatedPlugin, SimulationSettings
        from devicemanager.plugin.recording import Recorder
        from devicemanager.testing import pod_manifest

        GPU = "vendor.com/gpu"
        GPUS = SimulationSettings(resource_name=GPU, number_devices=2, node_name="n")
        pytestmark = pytest.mark.mock_kubelet(kubelet_version="1.30", shuffle_seed=3)

        @pytest.fixture(scope="session")
        def kubelet(session_mock_kubelet):
            with SimulatedPlugin(GPUS, session_mock_kubelet.plugin_dir):
                session_mock_kubelet.wait_for_resource(GPU, 2)
                yield session_mock_kubelet

        @pytest.mark.parametrize("turn", range(3))
        def test_a_shared_kubelet_is_reset(kubelet, turn):
            kubelet.wait_for_resource(GPU, 2)
            assert kubelet.pods() == {} and kubelet.faults.list() == ()
            assert kubelet.claims.pools() == () and len(kubelet.plugins()) == 1
            assert kubelet.admit(pod_manifest("both", {GPU: 2})).admitted
            assert not kubelet.admit(pod_manifest("rejected", {GPU: 1})).admitted
            kubelet.faults.set("fail-call")
            publish_hardware(kubelet.claims, SimulatedHardware(1, 0, 0))
            if turn == 1:
                kubelet.stop()

        def test_fails(session_mock_kubelet):
            session_mock_kubelet.faults.set("end-list-stream")
            assert False

        def test_fails_on_a_thread(session_mock_kubelet, simulated_plugin, monkeypatch):
            def update(*_):
                raise RuntimeError("on a thread")
            kubelet = session_mock_kubelet
            monkeypatch.setattr(kubelet.manager.plugins, "update", update)
            simulated_plugin(kubelet=kubelet, timeout=None)
            kubelet.wait_for(lambda: kubelet.events.recent("server-error"))

        class TestMarks:
            @pytest.fixture
            def mock_kubelet_settings(self):
                return Settings(shuffle_seed=1, strict=True)

            def test_the_module(self, mock_kubelet, module_mock_kubelet, session_mock_kubelet):
                settings = mock_kubelet.settings
                assert (settings.kubelet_version, settings.strict) == ("1.30", True)
                assert settings.shuffle_seed == 3
                assert module_mock_kubelet.settings.shuffle_seed == 3
                assert session_mock_kubelet.settings.shuffle_seed is None

            @pytest.mark.mock_kubelet(shuffle_seed=5)
            def test_the_closest_counts(self, make_mock_kubelet):
                settings = make_mock_kubelet(start=False).settings
                assert (settings.kubelet_version, settings.shuffle_seed) == ("1.30", 5)

        @pytest.fixture(scope="module")
        def recording(module_mock_kubelet, tmp_path_factory):
            path = tmp_path_factory.mktemp("p") / "r.ndjson"
            with (
                Recorder(path, module_mock_kubelet.plugin_dir) as recorder,
                SimulatedPlugin(GPUS, recorder.plugin_dir),
            ):
                module_mock_kubelet.wait_for_resource(GPU, 2)
                recorder.stop()
            return path

        @pytest.mark.parametrize("check", [True, False])
        def test_replay(mock_kubelet, replay_plugin, recording, check):
            replay_plugin(recording, check=check)
            assert mock_kubelet.allocatable() == {GPU: 2}
            assert not mock_kubelet.admit(pod_manifest("a", {GPU: 1})).admitted
        """
    )
    result.assert_outcomes(passed=6, failed=3)
    text = result.stdout.str()
    report = text[text.index("_ test_fails _") : text.index("_ test_fails_on_a_thread _")]
    # The events since the previous test only.
    assert "injected: end-list-stream" in report and "rejected" not in report
    assert "RuntimeError: on a thread" in text
    assert "was not recorded; no Allocate was recorded" in text
