//! The pool's configuration, as a scenario writes it.

ron_core::settings! {
    /// Everything a scenario may set on a pool node.
    pub struct PoolConfig {
        /// Workers that store items.
        workers: u32 = 4 => 1..=64, restart;
        /// Jobs that may wait; one more is answered 429.
        queue_cap: usize = 16 => 1..=65_536, restart;
        /// What queued jobs may take when the process is asked to stop.
        drain_deadline_ms: u64 = 3000 => 1..=600_000, restart;
        /// Deadline of a request that names none.
        request_deadline_ms: u64 = 1500 => 1..=600_000, restart;
        /// Largest request body; more is answered 413.
        body_bytes: u64 = 1_048_576 => 1..=10_485_760, restart;
        /// Requests served at once; more are answered 429.
        max_inflight: usize = 512 => 1..=65_536, restart;
        /// What a job costs besides its disk operations.
        job_ms: u64 = 0 => 0..=600_000, restart;
        /// Readiness while a worker is being restarted: kept or dropped.
        ready_while_restarting: bool = true, restart;
        /// A task that sleeps again and again and tells how long each sleep lasted.
        ticker: bool = false, restart;
        /// Two tasks that put the kernel's parts through random use and compare them with plain references.
        drills: bool = false, restart;
        /// Only the second of them, which leans on the disk.
        drills_of_disk: bool = false, restart;
        /// A task that asks for the shutdown signal only this long after its start; 0 for none.
        late_ms: u64 = 0 => 0..=600_000, restart;
    }
}
