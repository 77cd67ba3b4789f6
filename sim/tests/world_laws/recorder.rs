//! The recorder asks every oracle, whenever there is something to ask, and keeps the first answer.

use sim::{
    oracle::{Oracle, Verdict, WorldView},
    recorder::Recorder,
    trace::{Event, Outcome, What},
};

use super::{Two, law};

/// Objects at one kind of question, and then every time.
struct Objector(&'static str);

impl Objector {
    fn answer(&self, asked: &str) -> Verdict {
        if asked == self.0 {
            return Err(format!("no {asked}"));
        }
        Ok(())
    }
}

impl Oracle for Objector {
    fn name(&self) -> &'static str {
        self.0
    }

    fn event(&mut self, _: &Event) -> Verdict {
        self.answer("event")
    }

    fn sample(&mut self, _: &WorldView) -> Verdict {
        self.answer("sample")
    }

    fn finish(&mut self, _: &WorldView) -> Verdict {
        self.answer("finish")
    }
}

/// What a run records that has these oracles, sampled and finished.
fn verdict(two: &Two, oracles: &[&'static str]) -> Option<(&'static str, String)> {
    let oracles = oracles.iter().map(|asked| Box::new(Objector(asked)) as _);
    let recorder = Recorder::new(oracles.collect(), false, false);
    let text = "x".to_owned();
    recorder.record(None, What::Phase { text });
    recorder.sample(&two.world.view());
    recorder.finish(&two.world.view(), true);
    let violation = recorder.into_record(sim::timer::elapsed()).violation;
    violation.map(|v| (v.oracle, v.why))
}

#[test]
fn every_oracle_is_asked_at_every_event_every_sample_and_the_end() {
    law(|two: Two| async move {
        assert_eq!(verdict(&two, &["nothing"]), None);
        for asked in ["event", "sample", "finish"] {
            let expected = Some((asked, format!("no {asked}")));
            assert_eq!(verdict(&two, &["nothing", asked]), expected);
        }
    });
}

#[test]
fn the_first_violation_is_the_one_that_is_told() {
    law(|two: Two| async move {
        let first = verdict(&two, &["finish", "sample", "event"]);
        assert_eq!(first, Some(("event", "no event".to_owned())));
    });
}

#[test]
fn what_was_reached_is_marked_by_name() {
    law(|_: Two| async move {
        let recorder = Recorder::new(Vec::new(), true, false);
        let outcome = |outcome| What::Outcome {
            request: 1,
            outcome,
        };
        for what in [
            What::Probe {
                event: "job.lost",
                id: 1,
                detail: String::new(),
            },
            outcome(Outcome::Answered(429)),
            outcome(Outcome::Answered(418)),
            outcome(Outcome::Unknown),
            outcome(Outcome::NotSent),
            What::Died { how: "killed" },
        ] {
            recorder.record(None, what);
        }
        let record = recorder.into_record(sim::timer::elapsed());
        let marks: Vec<_> = record.marks.keys().map(String::as_str).collect();
        let expected = [
            "http.429",
            "http.not_sent",
            "http.other",
            "http.unknown",
            "job.lost",
            "node.died",
        ];
        assert_eq!(marks, expected);
        assert_eq!((record.events, record.lines.len()), (6, 6));
    });
}
