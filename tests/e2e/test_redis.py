"""The real Redis is sound: what the tests of pools rely on, seen once for itself."""

from tests.testbed import StartRedis, StartRedisCluster, wait_until


def test_what_was_written_down_survives_a_crash_and_nothing_else_does(start_redis: StartRedis) -> None:
    """An append-only file that is synced on every write keeps them all; without one, all is gone."""
    for append_only, expected in ((True, "1"), (False, None)):
        server = start_redis(append_only=append_only, fsync="always")
        with server.client() as client:
            assert client.info("server")["redis_version"].startswith("7.")
            client.set("pod", "1")
        server.kill()
        server.restart()
        with server.client() as client:
            assert client.get("pod") == expected


def test_a_replica_follows_its_master(start_redis: StartRedis) -> None:
    """What the master is told, the replica knows soon, and it takes no orders itself."""
    master = start_redis()
    replica = start_redis(replica_of=master)
    replica.wait_for_replica()
    with master.client() as above, replica.client() as below:
        above.set("pod", "1")
        wait_until(lambda: below.get("pod") == "1", "the write on the replica", 60)
        assert below.info("replication")["role"] == "slave"


def test_three_masters_share_the_slots_and_a_killed_one_comes_back(
    start_redis_cluster: StartRedisCluster,
) -> None:
    """Keys with one hash tag live together; after a crash of their master the cluster is whole again."""
    cluster = start_redis_cluster(append_only=True)
    with cluster.client() as client:
        client.mset({"{voice}:gold": "1", "{voice}:free": "2"})
        assert len({cluster.server_of(f"{{tag-{n}}}").port for n in range(50)}) == 3
    server = cluster.server_of("{voice}:gold")
    assert server is cluster.server_of("{voice}:free")
    server.kill()
    server.restart()
    cluster.wait_until_whole()
    with cluster.client() as client:
        assert client.get("{voice}:gold") == "1"
