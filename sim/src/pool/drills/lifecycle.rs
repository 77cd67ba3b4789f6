//! The life cycle itself, without a supervisor: every input at any time, each answer compared with a plain reference.
//!
//! The machine is pure, so time is a number that the drill moves. Timers fire late, in any order, and those that no longer
//! matter fire too; tasks end, fail and are stopped in whatever state they are.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ron_core::{
    backoff::{Backoff, Jitter},
    lifecycle::{
        Action, Ended, Escalate, Lifecycle, Restart, Stage, TaskId, TaskRules, TaskState, Timer,
    },
};

use super::{
    Bench, Verdict, agree, demand,
    lifecycle_reference::{Expect, Reference},
};

const NAMES: [&str; 3] = ["listener", "worker", "keeper"];
const KINDS: [&str; 2] = ["intake", "work"];

pub fn drill(bench: &mut Bench) -> Verdict {
    for _ in 0..3 {
        let mut game = Game::draw(bench);
        for _ in 0..80 {
            game.step(bench)?;
        }
        game.shutdown()?;
        game.let_it_end(bench)?;
    }
    Ok(())
}

struct Game {
    machine: Lifecycle,
    reference: Reference,
    restart: Restart,
    timers: Vec<(Instant, Timer)>,
}

impl Game {
    fn draw(bench: &mut Bench) -> Self {
        let deadlines: Vec<Duration> = (0..bench.pick(1, 3)).map(|_| bench.ms(5, 60)).collect();
        let (low, wide) = (bench.ms(1, 10), bench.ms(0, 10));
        let restart = Restart {
            backoff: Backoff {
                min: low,
                max: low * bench.pick(1, 8) as u32,
                jitter: bench.one_of(&[Jitter::None, Jitter::Band(wide), Jitter::Plus(wide)]),
            },
            max_restarts: bench.pick(0, 3) as u32,
            window: bench.ms(30, 300),
            stable_after: match bench.one_in(8) {
                true => Duration::MAX,
                false => bench.ms(5, 80),
            },
        };
        Game {
            machine: Lifecycle::new(deadlines.clone()),
            reference: Reference::new(deadlines, bench.env.now()),
            restart,
            timers: Vec::new(),
        }
    }

    fn step(&mut self, bench: &mut Bench) -> Verdict {
        if bench.one_in(2) {
            self.reference.now += bench.ms(0, 15);
        }
        match bench.pick(0, 11) {
            0 => self.register(bench),
            1..=4 => self.end_one(bench),
            5 => self.stop_one(bench),
            6 if bench.one_in(10) => self.shutdown(),
            _ => self.fire_one(bench),
        }
    }

    /// Everything ends: who hears, by itself; who does not, by force.
    fn let_it_end(&mut self, bench: &mut Bench) -> Verdict {
        for _ in 0..400 {
            if self.machine.stage() == Stage::Stopped {
                // Timers that are left do nothing any more.
                return self.fire_all(bench);
            }
            match bench.one_in(3) {
                true => self.end_one(bench)?,
                false => self.fire_one(bench)?,
            }
        }
        Err(format!("it never stopped: {:?}", self.machine.stage()))
    }

    fn fire_all(&mut self, bench: &mut Bench) -> Verdict {
        while !self.timers.is_empty() {
            self.fire_one(bench)?;
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------ inputs

    fn rules(&self, bench: &mut Bench) -> TaskRules {
        // Now and then one that nobody declared.
        let phases = self.reference.deadlines.len() + usize::from(bench.one_in(10));
        TaskRules {
            name: bench.one_of(&NAMES),
            kind: bench.one_of(&KINDS),
            worker: None,
            phase: bench.index(phases),
            long_lived: !bench.one_in(4),
            ready_while_restarting: bench.one_in(2),
            restart: self.restart,
            escalate: match bench.one_in(4) {
                true => Escalate::Exit,
                false => Escalate::ReadinessOff,
            },
        }
    }

    fn register(&mut self, bench: &mut Bench) -> Verdict {
        let rules = self.rules(bench);
        let came = self.machine.handle_register(rules, self.reference.now);
        let id = self.reference.register(rules);
        agree("register", came.as_ref().map(|(id, _)| *id), id)?;
        self.compare(
            "register",
            came.map(|(_, actions)| actions).unwrap_or_default(),
        )
    }

    /// Mostly one that lives; now and then one that is not there, or waits.
    fn one(&self, bench: &mut Bench) -> TaskId {
        let alive = |(id, task): (&TaskId, &super::lifecycle_reference::Known)| {
            (task.state != TaskState::Waiting).then_some(*id)
        };
        let alive: Vec<TaskId> = self.reference.tasks.iter().filter_map(alive).collect();
        if alive.is_empty() || bench.one_in(8) {
            return TaskId(bench.pick(0, 12));
        }
        bench.one_of(&alive)
    }

    fn end_one(&mut self, bench: &mut Bench) -> Verdict {
        let id = self.one(bench);
        let state = self.reference.tasks.get(&id).map(|task| task.state);
        // Who was aborted went without a word.
        let panics = bench.one_in(2) && state != Some(TaskState::Aborted);
        let how = if panics {
            Ended::Panicked
        } else {
            Ended::Finished
        };
        let now = self.reference.now;
        let came = self.machine.handle_ended(id, how, now, &mut bench.rng);
        self.reference.ended(id, how);
        self.compare(&format!("{id:?} {how:?}"), came)
    }

    fn stop_one(&mut self, bench: &mut Bench) -> Verdict {
        let id = match bench.one_in(2) {
            true => TaskId(bench.pick(0, 12)),
            false => self.one(bench),
        };
        let came = self.machine.handle_stop(id, self.reference.now);
        self.reference.stop(id);
        self.compare(&format!("stop of {id:?}"), came)
    }

    fn shutdown(&mut self) -> Verdict {
        let came = self.machine.handle_shutdown(self.reference.now);
        self.reference.shutdown();
        self.compare("shutdown", came)
    }

    /// One that is due; if none is, time goes on to the next.
    fn fire_one(&mut self, bench: &mut Bench) -> Verdict {
        let Some(next) = self.timers.iter().map(|(at, _)| *at).min() else {
            return Ok(());
        };
        if next > self.reference.now {
            let late = bench.ms(0, 3) * u32::from(bench.one_in(3));
            self.reference.now = next + late;
        }
        let now = self.reference.now;
        let due = |(n, (at, _)): (usize, &(Instant, Timer))| (*at <= now).then_some(n);
        let due: Vec<usize> = self.timers.iter().enumerate().filter_map(due).collect();
        let (_, timer) = self.timers.remove(bench.one_of(&due));
        let came = self.machine.handle_timer(timer, now);
        self.reference.fired(timer);
        self.compare(&format!("{timer:?}"), came)
    }

    // -------------------------------------------------------------------------------- comparison

    fn compare(&mut self, input: &str, came: Vec<Action>) -> Verdict {
        let expected = self.reference.done();
        let fits = |(came, expected): (&Action, &Expect)| match (came, expected) {
            (came, Expect::Do(action)) => came == action,
            (Action::Arm { timer, at }, Expect::Restart(id, from, to)) => {
                *timer == Timer::Restart(*id) && from <= at && at <= to
            }
            _ => false,
        };
        let all = came.len() == expected.len() && came.iter().zip(&expected).all(fits);
        demand(all, || {
            format!("after {input}: expected {expected:?}, came {came:?}")
        })?;
        for action in came {
            if let Action::Arm { timer, at } = action {
                self.timers.push((at, timer));
            }
        }
        self.same_state()
            .map_err(|why| format!("after {input}: {why}"))
    }

    fn same_state(&self) -> Verdict {
        let (machine, reference) = (&self.machine, &self.reference);
        agree("stage", machine.stage(), reference.stage)?;
        agree("exit", machine.exit(), reference.exit)?;
        agree("counts", machine.counts(), &reference.counts)?;
        agree("phases", machine.phases(), &reference.phases[..])?;
        let came = machine.tasks().iter();
        let came = came.map(|(id, task)| (*id, (task.state, task.incarnation)));
        let expected = reference.tasks.iter();
        let expected = expected.map(|(id, task)| (*id, (task.state, task.restarts)));
        agree::<BTreeMap<_, _>>("tasks", came.collect(), expected.collect())?;
        for name in NAMES {
            let told = format!("why {name} holds its gate closed");
            agree(&told, machine.gate_reason(name), reference.gate(name))?;
        }
        Ok(())
    }
}
