"""Records that cannot be written, weaker deliveries, and brokers that are away: no checkpoint counts what is not there
(T21), and a job that has to wait says so and goes on."""

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.integration.programs import wait_until
from tests.integration.running import Bench
from tests.kafka.brokers import Broker
from tests.kafka.conftest import OwnKafka
from tests.kafka.faults import program
from tests.kafka.faults.jobs import CountingJob, interrupt, kill_all, wait_until_stopped
from tests.kafka.medium import kafka_bench
from tidegate.connectors.kafka.connection import Client

A_RESTART = "restart 1 in"


# ---- records -------------------------------------------------------------------------------------------------------


def test_T21_a_record_that_only_the_broker_finds_too_large_is_one_error_and_no_checkpoint_goes_past_it(
    kafka: Broker, job: CountingJob
) -> None:
    topic = job.output_topic
    limit = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    changed = kafka.admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[limit])]
    )
    for done in changed.values():
        done.result(10)
    job.feed(100)
    job.run_until_all_is_out()
    job.feed(100)
    refused = job.run("--enlarge", "150")
    assert refused.process.returncode == 2, refused.said
    assert topic in refused.said
    assert "max.message.bytes" in refused.said
    sizes = {f"{size:,}" for size in range(program.LARGE, program.LARGE + 100)}
    assert any(f"A record of {size} bytes" in refused.said for size in sizes), refused.said
    assert "Traceback" not in refused.said
    assert refused.said.count("max.message.bytes") <= 2
    partition, offset = next((p, numbers.index(150)) for p, numbers in enumerate(job.fed) if 150 in numbers)
    assert job.positions()[partition] <= offset, "a checkpoint counts the record that is not there"
    job.run_until_all_is_out()
    job.assert_exactly_once()
    job.assert_nothing_is_open()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_T21_a_broker_that_is_away_for_longer_than_a_record_may_wait_costs_no_record(
    own_kafka: OwnKafka, tmp_path_factory: pytest.TempPathFactory, job_client: Client
) -> None:
    broker = own_kafka()
    with kafka_bench(broker, tmp_path_factory.mktemp("bench"), job_client) as bench:
        job = CountingJob(bench)
        words = ["--message-timeout", "2000", "--pause", "0.002"]
        job.feed(4000)
        started = job.start(*words, options=["--restart", "fixed-delay:100:500ms"])
        started.wait_until(lambda: job.count() > 0, "the first output")
        broker.kafka.kill()
        started.wait_until(lambda: A_RESTART in started.said, "a failed attempt")
        broker.kafka.restart()
        job.wait_for_all(started)
        interrupt(started)
        assert "bug" not in started.said
        job.assert_exactly_once()
        job.assert_nothing_is_open()


# ---- weaker deliveries ---------------------------------------------------------------------------------------------


def test_at_least_once_a_crash_doubles_some_and_loses_none(job: CountingJob) -> None:
    words = ["--delivery", "at-least-once"]
    job.feed(2000)
    started = job.start(*words, "--pause", "0.001", fail_point="log-append:before:4@jobmanager")
    started.wait()
    job.feed(100)
    started = job.start(*words)
    expected = {one for records in job.expected().values() for one in records}

    def found() -> set[tuple[int, int]]:
        return {one for records in job.output().values() for one in records}

    started.wait_until(lambda: found() >= expected, "every record")
    interrupt(started)
    assert found() == expected
    for key, records in job.output().items():
        assert list(dict.fromkeys(records)) == list(job.expected()[key]), f"{key} is out of order: {records}"


@pytest.mark.slow
def test_with_delivery_none_a_job_runs_on_after_a_crash_and_opens_no_transaction(
    bench: Bench, job: CountingJob
) -> None:
    words = ["--delivery", "none"]
    job.feed(400)
    started = job.start(*words)
    job.wait_for_all(started)
    kill_all(started)
    job.feed(400)
    started = job.start(*words)
    numbers = set(range(400, 800))
    started.wait_until(
        lambda: {number for records in job.output().values() for _, number in records} >= numbers, "the rest"
    )
    interrupt(started)
    assert not [id for id in job.medium.transactional_ids() if id.startswith(f"{job.name}:")]
    assert bench.view(job.name).attempt == 2


# ---- brokers that are away -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_broker_that_is_started_again_under_an_unbounded_job_costs_no_record(
    own_kafka: OwnKafka, tmp_path_factory: pytest.TempPathFactory, job_client: Client, how: str
) -> None:
    broker = own_kafka()
    with kafka_bench(broker, tmp_path_factory.mktemp("bench"), job_client) as bench:
        job = CountingJob(bench)
        job.feed(2000)
        started = job.start("--pause", "0.001")
        started.wait_until(lambda: job.count() > 0, "the first output")
        if how == "kill":
            broker.kafka.kill()
            broker.kafka.restart()
        else:
            broker.kafka.stop()
            broker.kafka.start()
        job.feed(2000)
        job.wait_for_all(started)
        interrupt(started)
        assert "bug" not in started.said
        job.assert_exactly_once()
        wait_until(lambda: bench.open_transactions(job.name) == [], "the end of all transactions")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_broker_that_is_away_at_the_start_is_waited_for_and_what_was_prepared_is_committed_when_it_comes(
    own_kafka: OwnKafka, tmp_path_factory: pytest.TempPathFactory, job_client: Client
) -> None:
    broker = own_kafka()
    with kafka_bench(broker, tmp_path_factory.mktemp("bench"), job_client) as bench:
        job = CountingJob(bench)
        job.feed(400)
        started = job.start(fail_point="commit:before=stop")
        wait_until_stopped(started)
        kill_all(started)
        broker.kafka.kill()
        started = job.start(options=["--restart", "none"])
        wait_until(lambda: "waiting for" in started.said, "a word that it waits", 15)
        assert "sink out" in started.said
        broker.kafka.restart()
        job.feed(100)
        job.wait_for_all(started)
        interrupt(started)
        job.assert_exactly_once()
        wait_until(lambda: bench.open_transactions(job.name) == [], "the end of all transactions")


# ---- topics --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["input", "output_topic"])
def test_a_topic_that_a_job_with_a_checkpoint_does_not_find_is_one_error(job: CountingJob, missing: str) -> None:
    """The first start is about the input, and so is a later one with another output."""
    name = job.medium.name("no-such")
    if missing == "output_topic":
        job.feed(40)
        job.run_until_all_is_out()
        job.feed(40)
    setattr(job, missing, name)
    refused = job.run(options=["--restart", "fixed-delay:2:100ms"])
    assert refused.process.returncode == 2, refused.said
    assert name in refused.said
    assert "Traceback" not in refused.said
    assert A_RESTART not in refused.said
