"""Real Redis servers: alone, as replicas, as a cluster of masters; killed and restarted at will."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis import exceptions

from tests.testbed.build import binary
from tests.testbed.processes import Process, free_port, wait_until, with_free_ports

SLOTS = 16384
_JOINING_MS = "2000"
_PATIENT_MS = "30000"
"""Until then a cluster is quickly whole; from then on, members must not take each other for dead because the
machine stood still for some seconds."""


class RedisServer:
    """One server on its own port and folder. `kill` and `restart` keep both."""

    def __init__(
        self,
        folder: Path,
        *,
        append_only: bool = False,
        fsync: str = "everysec",
        replica_of: "RedisServer | None" = None,
        is_in_cluster: bool = False,
        extra_args: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.port = 0
        self.bus_port = 0
        """Where it speaks with the others of its cluster."""
        self._append_only = append_only
        self._fsync = fsync
        self._replica_of = replica_of
        self._is_in_cluster = is_in_cluster
        self._extra_args = tuple(extra_args)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def client(self, **options: Any) -> Any:
        """Give a client of this server alone, with texts for answers; close it."""
        return redis.Redis(port=self.port, **{"decode_responses": True, "socket_timeout": 30, **options})

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with_free_ports(self._start)

    def stop(self) -> None:
        """End it politely."""
        if self._process is not None:
            self._process.stop()

    def kill(self) -> None:
        """End it at once, as a crash would: what was not written down is lost."""
        assert self._process is not None, "Redis was not started"
        self._process.kill()

    def restart(self) -> None:
        """Start it again on the same port and the same data, and wait until it answers."""
        assert self._process is not None, "Redis was not started"
        self._process.stop()
        self._process.start()
        self._wait()

    def wait_for_replica(self, seconds: float = 60) -> None:
        """Wait until this replica has its master's data and follows it."""

        def follows() -> bool:
            with self.client() as client:
                return bool(client.info("replication").get("master_link_status") == "up")

        wait_until(follows, f"the replica at {self.url} in step", seconds)

    def _start(self) -> None:
        self.port = free_port()
        words: list[str | Path] = [
            *(binary("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder),
            *("--save", "", "--appendonly", "yes" if self._append_only else "no"),
            *("--appendfsync", self._fsync),
            *("--repl-diskless-sync-delay", "0"),  # a master would wait five seconds for more replicas
        ]
        if self._replica_of is not None:
            words += ["--replicaof", "127.0.0.1", str(self._replica_of.port)]
        if self._is_in_cluster:
            self.bus_port = free_port()
            words += ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
            words += ["--cluster-node-timeout", _JOINING_MS]
        log = self.folder / "logs" / "redis.log"
        self._process = Process("redis-server", [*words, *self._extra_args], log)
        self._process.start()
        try:
            self._wait()
        except BaseException:
            self._process.stop()
            raise

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait_until(self._answers, "Redis answering", 60)

    def _answers(self) -> bool:
        try:
            with self.client(socket_timeout=1) as client:
                return bool(client.ping())
        except exceptions.RedisError:  # not there yet, or still loading its data
            return False


class RedisCluster:
    """Masters that share the slots in equal parts."""

    def __init__(self, folder: Path, *, masters: int = 3, append_only: bool = False) -> None:
        self.servers = [
            RedisServer(folder / f"master-{number}", append_only=append_only, is_in_cluster=True)
            for number in range(1, masters + 1)
        ]

    @property
    def url(self) -> str:
        """The address of one of them; a client learns the others from it."""
        return self.servers[0].url

    @property
    def processes(self) -> list[Process]:
        return [process for server in self.servers for process in server.processes]

    def client(self, **options: Any) -> Any:
        """Give a client that follows the slots; close it."""
        return redis.RedisCluster.from_url(self.url, **{"decode_responses": True, **options})

    def start(self) -> None:
        try:
            for server in self.servers:
                server.start()
            self._join()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def server_of(self, key: str) -> RedisServer:
        """Give the master that keeps a key."""
        with self.client() as client:
            port = client.get_node_from_key(key).port
        return next(server for server in self.servers if server.port == port)

    def wait_until_whole(self, seconds: float = 60) -> None:
        """Wait until every master says that all slots are served."""
        wait_until(self._is_whole, "a whole Redis cluster", seconds)
        for server in self.servers:
            with server.client() as client:
                client.config_set("cluster-node-timeout", _PATIENT_MS)

    def _join(self) -> None:
        count = len(self.servers)
        for number, server in enumerate(self.servers):
            with server.client() as client:
                begin, end = (SLOTS * n // count for n in (number, number + 1))
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", begin, end - 1)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                for other in self.servers[:number]:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        self.wait_until_whole()

    def _is_whole(self) -> bool:
        try:
            return all(self._sees_all(server) for server in self.servers)
        except exceptions.RedisError:
            return False

    def _sees_all(self, server: RedisServer) -> bool:
        with server.client() as client:
            told = client.cluster("INFO")
        return (
            told["cluster_state"] == "ok"
            and int(told["cluster_slots_ok"]) == SLOTS
            and int(told["cluster_size"]) == len(self.servers)
        )
