//! The follower sees each way to leave a model, and sees nothing where there is nothing.

use super::*;
use crate::pool::conformance as queue;

fn events(text: &str) -> Vec<SpecEvent<'_>> {
    let event = |line: &'_ str| {
        let mut words = line.trim().splitn(3, ' ');
        let name = words.next().unwrap_or_default();
        // Leaked in a test only: the event borrows from its text.
        let line: &'static str = line.trim().to_owned().leak();
        SpecEvent {
            name: &line[..name.len()],
            id: words.next().unwrap_or("0").parse().expect("a number"),
            detail: line.splitn(3, ' ').nth(2).unwrap_or(""),
        }
    };
    text.lines()
        .filter(|l| !l.trim().is_empty())
        .map(event)
        .collect()
}

fn follow<R>(text: &str) -> (Verdict, Conformance<R>)
where
    R: Reading,
    StateOf<R>: Debug,
    ActionOf<R>: Debug + Clone,
{
    let mut follower = Conformance::<R>::new();
    let verdict = events(text)
        .iter()
        .try_for_each(|event| follower.follow(0, event));
    (verdict, follower)
}

fn strays<R>(text: &str, says: &str)
where
    R: Reading,
    StateOf<R>: Debug,
    ActionOf<R>: Debug + Clone,
{
    let why = follow::<R>(text).0.expect_err(text);
    assert!(why.contains(says), "{says} is not in: {why}");
    let last = text.trim().lines().last().unwrap_or_default().trim();
    assert!(why.contains(last), "the event is named: {why}");
}

#[test]
fn a_queue_that_behaves_is_followed_to_the_end() {
    let text = "began 2\npush 7 true\npush 8 true\npush 9 false\npop 7\npush 10 true\npop 8\nclose\npush 11 false\nclear 1\n";
    let (verdict, follower) = follow::<queue::Follow>(text);
    assert_eq!(verdict, Ok(()));
    let seen: Vec<_> = follower.transitions_seen().clone().into_iter().collect();
    assert_eq!(
        seen,
        [
            ("clear", 1),
            ("close", 1),
            ("pop", 2),
            ("push", 3),
            ("refuse", 2)
        ]
    );
}

#[test]
fn a_queue_that_misbehaves_leaves_the_model_at_that_event() {
    for (text, says) in [
        (
            "began 1\npush 1 true\npush 2 true",
            "accepts what the model refuses",
        ),
        ("began 1\npush 1 false", "refuses what the model accepts"),
        (
            "began 2\npush 1 true\npush 2 true\npop 2",
            "hands out Some(1)",
        ),
        ("began 2\npush 1 true\npop 1\npop 1", "from an empty queue"),
        (
            "began 2\nclose\npush 1 true",
            "accepts what the model refuses",
        ),
        (
            "began 2\npush 1 true\nclose\nclear 2",
            "2 thrown out, 1 waited",
        ),
        ("push 1 true", "before the process began"),
        ("began 2\npeek 1", "no event \"peek\""),
        ("began 2\npush 1 perhaps", "\"perhaps\" was not expected"),
    ] {
        strays::<queue::Follow>(text, says);
    }
}

/// A process with one worker in the first phase and a listener in the second, both up.
const UP: &str = "began 2
    register 0 0 true false false 1 60000000000
    start 0 0
    register 1 1 true true false 10 60000000000
    start 1 0
";

#[test]
fn a_supervisor_that_behaves_is_followed_to_the_end() {
    let text = format!(
        "{UP}ended 0 true 1000
        fire 0 restart 0
        start 0 1
        fire 0 stable 1
        shutdown
        unready
        phase 0
        stop 0
        ended 0 false 2000
        phase 1
        stop 1
        fire 1 phase 0
        abort 1
        ended 1 false 3000
        stopped\n"
    );
    let (verdict, follower) = follow::<lifecycle::Follow>(&text);
    assert_eq!(verdict, Ok(()));
    for step in [
        "panic",
        "fire_restart",
        "fire_stable",
        "shutdown",
        "finish",
        "fire_phase",
        "gone",
    ] {
        assert_eq!(follower.transitions_seen().get(step), Some(&1), "{step}");
    }
}

#[test]
fn a_supervisor_that_misbehaves_leaves_the_model_at_that_event() {
    for (more, says) in [
        ("start 0 1", "was not called for"),
        ("ended 0 true 1\nstart 0 1", "was not called for"),
        ("fire 0 restart 0", "no step of the model"),
        ("stop 0", "was not called for"),
        ("abort 1", "was not called for"),
        ("phase 0", "was not called for"),
        ("stopped", "was not called for"),
        (
            "shutdown\nunready\nphase 0\nended 0 false 5",
            "Stop(TaskId(0)) was called for and has not been done",
        ),
        (
            "shutdown\nphase 0\nstop 0\nended 0 false 5",
            "Unready was called for",
        ),
        (
            "shutdown\nunready\nphase 0\nstop 0\nstop 1",
            "was not called for",
        ),
        (
            "shutdown\nunready\nphase 0\nstop 0\nended 0 false 5\nstopped",
            "was not called for",
        ),
        ("ended 7 true 5", "no step of the model"),
        (
            "register 5 0 true false false 1 60",
            "registers no such task",
        ),
        (
            "register 2 9 true false false 1 60",
            "registers no such task",
        ),
        ("fire 0 never 0", "no timer"),
        // Stopped alone while it waited for its restart: the restart is off.
        (
            "ended 0 true 1\nstop_alone 0\nfire 0 restart 0\nstart 0 1",
            "was not called for",
        ),
    ] {
        strays::<lifecycle::Follow>(&format!("{UP}{more}"), says);
    }
}

#[test]
fn the_restart_budget_is_followed_by_the_time_that_the_process_tells() {
    // The worker has one restart in a minute: the second failure within it closes the gate, a later one does
    // not. Either way it is restarted, so both are behaviours; a listener over its budget is not told to exit.
    let twice = |second: &str| {
        format!(
            "{UP}ended 0 true 1000\nfire 0 restart 0\nstart 0 1\nended 0 true {second}\nfire 0 restart 0\nstart 0 2\n"
        )
    };
    for second in ["2000", "61000000000"] {
        assert_eq!(follow::<lifecycle::Follow>(&twice(second)).0, Ok(()));
    }
    let exits = |second: &str| {
        let up = "began 1\nregister 0 0 true true true 1 60000000000\nstart 0 0\n";
        format!("{up}ended 0 true 1000\nfire 0 restart 0\nstart 0 1\nended 0 true {second}\n")
    };
    let soon = exits("2000") + "unready\nphase 0\nstopped\n";
    assert_eq!(follow::<lifecycle::Follow>(&soon).0, Ok(()));
    strays::<lifecycle::Follow>(&(exits("2000") + "fire 0 restart 0"), "was called for");
    let late = exits("61000000000") + "fire 0 restart 0\nstart 0 2\n";
    assert_eq!(follow::<lifecycle::Follow>(&late).0, Ok(()));
    strays::<lifecycle::Follow>(&(exits("61000000000") + "unready"), "was not called for");
}

#[test]
fn a_run_without_an_event_fails() {
    let empty = WorldView {
        at: std::time::Duration::ZERO,
        nodes: Vec::new(),
    };
    let mut follower = Conformance::<queue::Follow>::new();
    let why = follower.finish(&empty).expect_err("nothing was compared");
    assert!(why.contains("nothing was compared"), "{why}");
    let (_, mut follower) = follow::<queue::Follow>("began 1");
    assert_eq!(follower.finish(&empty), Ok(()));
}

#[test]
fn a_new_process_begins_anew_and_one_that_strayed_is_told_once() {
    let (verdict, mut follower) = follow::<queue::Follow>("began 1\npush 1 true\npop 2");
    assert!(verdict.is_err());
    for event in events("push 5 true\npop 9") {
        assert_eq!(
            follower.follow(0, &event),
            Ok(()),
            "all else follows from it"
        );
    }
    for event in events("began 1\npush 1 true") {
        assert_eq!(follower.follow(0, &event), Ok(()));
    }
    assert!(follower.follow(0, &events("pop 4")[0]).is_err());
}

#[test]
fn coverage_tells_the_share_of_steps() {
    let marks = BTreeMap::from([
        (mark("queue", "push"), 3),
        (mark("queue", "pop"), 2),
        ("http.200".to_owned(), 9),
    ]);
    let coverage = transitions_seen(&marks);
    let queue = coverage
        .iter()
        .find(|c| c.model == "queue")
        .expect("listed");
    assert_eq!(queue.seen, BTreeMap::from([("push", 3), ("pop", 2)]));
    assert_eq!(queue.unseen, ["refuse", "close", "clear"]);
    assert_eq!(queue.total(), 5);
}

#[test]
fn an_event_belongs_to_the_model_of_its_whole_name() {
    assert!(is_of("spec.queue.push", "queue"));
    assert!(!is_of("spec.queues.push", "queue"));
    assert!(!is_of("queue.push", "queue"));
    assert!(is_of("spec.kms.audit.append", "kms.audit"));
    assert!(!is_of("spec.kms.audit.append", "kms.aud"));
}
