"""Carries out the strikes of a schedule on the processes, brokers, network and disk that are there.

A strike returns at once: what ends it is on the agenda, or is done by the brokers' thread. What finds nobody to strike
is told and changes nothing.
"""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.chaos.brokers import Brokers
from tests.chaos.disk import Disk
from tests.chaos.schedule import Kind, Strike
from tests.chaos.supervisor import Start, Supervisor
from tests.chaos.timeline import Agenda, Timeline
from tests.kafka.proxy import KafkaProxy
from tidegate.deploy.dev_kafka import DevKafka


class Faults:
    """`strike` does one."""

    def __init__(
        self, supervisor: Supervisor, brokers: Brokers, disk: Disk, timeline: Timeline, agenda: Agenda
    ) -> None:
        self._supervisor = supervisor
        self._brokers = brokers
        self._disk = disk
        self._timeline = timeline
        self._agenda = agenda
        self._network_is_struck = False
        self._disk_is_full = False
        self._actions: dict[Kind, Callable[[Strike, Start], None]] = {
            Kind.KILL_WORKER: self._kill_worker,
            Kind.KILL_JOB_MANAGER: self._kill_job_manager,
            Kind.KILL_GROUP: self._kill_group,
            Kind.STOP_WORKER: self._stop_worker,
            Kind.STOP_JOB_MANAGER: self._stop_job_manager,
            Kind.KILL_BROKER: self._kill_broker,
            Kind.STOP_BROKER: self._stop_broker,
            Kind.ROLL_BROKERS: self._roll_brokers,
            Kind.CUT_NETWORK: self._cut_network,
            Kind.DELAY_NETWORK: self._delay_network,
            Kind.RESET_NETWORK: self._reset_network,
            Kind.LOSE_REPLIES: self._lose_replies,
            Kind.HOLD_REQUESTS: self._hold_requests,
            Kind.FILL_DISK: self._fill_disk,
            Kind.RESCALE: self._rescale,
            Kind.SAVEPOINT: self._savepoint,
            Kind.MOVE: self._move,
            Kind.INTERRUPT: self._interrupt,
            Kind.CALM: self._calm,
        }

    def strike(self, strike: Strike) -> None:
        current = self._supervisor.current
        if current is None:
            self._miss(strike, "the job does not run")
        else:
            self._actions[strike.kind](strike, current)

    def _miss(self, strike: Strike, why: str) -> None:
        self._timeline.tell(f"{strike.kind.value} strikes nobody: {why}")

    def _struck(self, strike: Strike, text: str) -> None:
        self._timeline.struck(strike.kind.value, text)

    # ---- processes of the job --------------------------------------------------------------------------------------

    def _kill_worker(self, strike: Strike, current: Start) -> None:
        workers = current.workers()
        if not workers:
            self._miss(strike, "no worker lives")
            return
        self._timeline.faults[strike.kind.value] += 1
        self._supervisor.kill(current, [strike.pick(workers)], "worker")

    def _kill_job_manager(self, strike: Strike, current: Start) -> None:
        self._timeline.faults[strike.kind.value] += 1
        self._supervisor.kill(current, [current.pid], "jobmanager")

    def _kill_group(self, strike: Strike, current: Start) -> None:
        self._timeline.faults[strike.kind.value] += 1
        self._supervisor.kill_group(current)

    def _stop_worker(self, strike: Strike, current: Start) -> None:
        workers = current.workers()
        if not workers:
            self._miss(strike, "no worker lives")
            return
        pid = strike.pick(workers)
        self._struck(strike, f"worker {pid} of {current.name} for {strike.seconds:.1f} s")
        _send(pid, signal.SIGSTOP)
        self._agenda.after(strike.seconds, lambda: self._continue(pid, current))

    def _stop_job_manager(self, strike: Strike, current: Start) -> None:
        """Every second time with its workers."""
        has_all = strike.choice < 0.5
        self._struck(strike, f"{current.name}{' and its workers' if has_all else ''} for {strike.seconds:.1f} s")
        if has_all:
            current.started.send_to_all(signal.SIGSTOP)
        else:
            _send(current.pid, signal.SIGSTOP)
        self._agenda.after(strike.seconds * strike.second_start, lambda: self._supervisor.replace(current))
        self._agenda.after(strike.seconds, lambda: self._supervisor.resume(current))

    def _continue(self, pid: int, start: Start) -> None:
        if pid in start.started.living():
            self._timeline.tell(f"continue worker {pid} of {start.name}")
            _send(pid, signal.SIGCONT)

    # ---- brokers ---------------------------------------------------------------------------------------------------

    def _with_broker(self, strike: Strike, text: str, act: Callable[[DevKafka, int], None]) -> None:
        if self._brokers.is_busy:
            self._miss(strike, "another broker is struck")
            return
        node = strike.pick(range(1, self._brokers.nodes + 1))
        self._struck(strike, f"{text} {node}" if text else "one after another")

        def task(kafka: DevKafka) -> None:
            act(kafka, node)
            self._timeline.tell(f"brokers: all {self._brokers.nodes} are back")

        self._brokers.submit(task)

    def _kill_broker(self, strike: Strike, current: Start) -> None:
        def act(kafka: DevKafka, node: int) -> None:
            kafka.kill(node)
            self._timeline.killed("broker", f"broker {node}")
            self._brokers.wait(strike.seconds)
            kafka.restart(node)

        self._with_broker(strike, f"down for {strike.seconds:.1f} s at least: node", act)

    def _stop_broker(self, strike: Strike, current: Start) -> None:
        def act(kafka: DevKafka, node: int) -> None:
            kafka.pause(node)
            self._brokers.wait(strike.seconds)
            kafka.resume(node)
            kafka.wait_until_ready()

        self._with_broker(strike, f"stopped for {strike.seconds:.1f} s: node", act)

    def _roll_brokers(self, strike: Strike, current: Start) -> None:
        def act(kafka: DevKafka, node: int) -> None:
            for number in range(1, self._brokers.nodes + 1):
                kafka.restart(number)

        self._with_broker(strike, "", act)

    # ---- network ---------------------------------------------------------------------------------------------------

    def _on_network(self, strike: Strike, text: str, act: Callable[[KafkaProxy], Callable[[], None]]) -> None:
        """`act` strikes the job's way to one broker, or with `choice` above a half to all, and returns what ends it."""
        if self._network_is_struck:
            self._miss(strike, "the network is struck")
            return
        self._network_is_struck = True
        proxies = self._brokers.proxies
        chosen = proxies if strike.choice > 0.5 else [proxies[int(strike.choice * 2 * len(proxies))]]
        self._struck(strike, f"{text} for {strike.seconds:.1f} s, {len(chosen)} of {len(proxies)} brokers")
        ends = [act(proxy) for proxy in chosen]

        def end() -> None:
            self._timeline.tell(f"network: end of {strike.kind.value}")
            for one in ends:
                one()
            self._network_is_struck = False

        self._agenda.after(strike.seconds, end)

    def _cut_network(self, strike: Strike, current: Start) -> None:
        def act(proxy: KafkaProxy) -> Callable[[], None]:
            proxy.cut()
            return proxy.heal

        self._on_network(strike, "cut", act)

    def _delay_network(self, strike: Strike, current: Start) -> None:
        def act(proxy: KafkaProxy) -> Callable[[], None]:
            proxy.delay(strike.delay, strike.delay)
            return proxy.heal

        self._on_network(strike, f"each way {strike.delay * 1000:.0f} to {strike.delay * 2000:.0f} ms", act)

    def _reset_network(self, strike: Strike, current: Start) -> None:
        """Every half second."""

        def act(proxy: KafkaProxy) -> Callable[[], None]:
            for number in range(int(strike.seconds * 2) + 1):
                self._agenda.after(number / 2, proxy.reset_connections)
            return proxy.heal

        self._on_network(strike, "resets", act)

    def _lose_replies(self, strike: Strike, current: Start) -> None:
        def act(proxy: KafkaProxy) -> Callable[[], None]:
            proxy.lose_replies(strike.api, reset=strike.second_start < 0.5)
            return proxy.heal

        self._on_network(strike, f"replies to {strike.api} lost", act)

    def _hold_requests(self, strike: Strike, current: Start) -> None:
        """Whoever sent them is killed meanwhile, two times of three."""

        def act(proxy: KafkaProxy) -> Callable[[], None]:
            return proxy.hold(strike.held).release

        if strike.second_start < 0.67 and not self._network_is_struck:
            self._agenda.after(strike.seconds * 0.6, lambda: self._kill_holder(strike))
        self._on_network(strike, f"{strike.held} held", act)

    def _kill_holder(self, strike: Strike) -> None:
        current = self._supervisor.current
        if current is not None:
            kill = self._kill_worker if strike.second_start < 0.33 else self._kill_group
            kill(strike, current)

    # ---- disk ------------------------------------------------------------------------------------------------------

    def _fill_disk(self, strike: Strike, current: Start) -> None:
        if self._disk_is_full:
            self._miss(strike, "it is full")
            return
        self._struck(strike, f"{self._disk.name} is full for {strike.seconds:.1f} s")
        self._disk_is_full = True
        self._disk.fill(self._pids())
        self._agenda.after(strike.seconds, self._free_disk)

    def _free_disk(self) -> None:
        self._timeline.tell("disk: there is room again")
        self._disk_is_full = False
        self._disk.free(self._pids())

    def _pids(self) -> list[int]:
        return [pid for start in self._supervisor.living() for pid in start.started.living()]

    # ---- what people ask for ---------------------------------------------------------------------------------------

    def _rescale(self, strike: Strike, current: Start) -> None:
        self._struck(strike, f"-p {self._supervisor.parallelism} becomes -p {strike.parallelism}")
        self._supervisor.parallelism = strike.parallelism
        self._supervisor.interrupt(current)

    def _interrupt(self, strike: Strike, current: Start) -> None:
        self._struck(strike, current.name)
        self._supervisor.interrupt(current)

    def _savepoint(self, strike: Strike, current: Start) -> None:
        if self._supervisor.is_asking:
            self._miss(strike, "another command waits")
            return
        path = self._savepoint_path(strike)
        self._struck(strike, path.name)

        def done(code: int, said: str) -> None:
            shutil.rmtree(path, ignore_errors=True)

        self._supervisor.ask("savepoint", self._supervisor.job, str(path), done=done)

    def _move(self, strike: Strike, current: Start) -> None:
        supervisor = self._supervisor
        if supervisor.is_asking or supervisor.living() != [current]:
            self._miss(strike, "another command waits, or another start lives")
            return
        path = self._savepoint_path(strike)
        self._struck(strike, f"{current.name} to {strike.backend}, -p {strike.parallelism}")
        current.was_asked = True

        def done(code: int, said: str) -> None:
            # A start that was made meanwhile goes on from where the savepoint was written, and then only from there.
            if code == 0 and supervisor.starts[-1] is current and not current.is_alive:
                supervisor.savepoint = path
                supervisor.backend, supervisor.parallelism = strike.backend, strike.parallelism

        supervisor.ask("stop", supervisor.job, "--savepoint", str(path), done=done, ends=current)

    def _savepoint_path(self, strike: Strike) -> Path:
        return self._disk.path / f"savepoint-{strike.number}"

    def _calm(self, strike: Strike, current: Start) -> None:
        self._struck(strike, "nothing for a while")


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
