//! svc-rewarder, as far as it is there: the reward calculus. No task, socket or file yet; the service is built on it.

pub mod calculus;
