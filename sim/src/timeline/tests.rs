//! The page holds all of a run, and nothing in a run can break out of it.

use std::time::Duration;

use super::*;
use crate::{
    detail::{Depth, Message},
    explain::Explanation,
    oracle::Violation,
    recorder::Record,
};

const NASTY: &str = "</script><script>alert(1)</script><!-- \u{2028} \"quoted\" 'it' & ü";

fn explanation() -> Explanation {
    let mut detail = Detail {
        nodes: vec![NASTY.to_owned(), "client".to_owned()],
        ..Detail::default()
    };
    let ms = Duration::from_millis;
    let mut event = |at, node, what| {
        detail.events.push(Event {
            at: ms(at),
            node,
            what,
        });
    };
    event(0, Some(0), What::Started { incarnation: 1 });
    let ready = What::Probe {
        event: "readiness",
        id: 1,
        detail: "ready=true".to_owned(),
    };
    event(1, Some(0), ready);
    let (request, op, key) = (7, "pool.put", 7);
    event(2, Some(1), What::Request { request, op, key });
    let text = "disk.stall 30 ms".to_owned();
    event(3, Some(0), What::Fault { text });
    let text = "net.loss 5/10000 for 9 ms".to_owned();
    event(4, Some(0), What::Fault { text: text.clone() });
    event(8, Some(0), What::Healed { text });
    let outcome = Outcome::Unknown;
    event(9, Some(1), What::Outcome { request, outcome });
    event(10, Some(0), What::Died { how: "killed" });
    event(11, None, What::Phase { text: NASTY.into() });
    detail.messages.push(Message {
        from: 1,
        to: 0,
        sent: ms(2),
        arrives: None,
        bytes: 12,
        kind: "data",
    });
    detail.depths.push(Depth {
        at: ms(3),
        node: 0,
        queue: "work",
        depth: 3,
        cap: 8,
    });
    detail.aims.insert(7, 0);
    let plan = vec![
        Planned {
            at_us: 3000,
            on: NASTY.to_owned(),
            fault: Fault::DiskStall { for_ms: 30 },
        },
        Planned {
            at_us: 4000,
            on: NASTY.to_owned(),
            fault: Fault::Loss {
                for_ms: 9,
                per_10_000: 5,
            },
        },
    ];
    let violation = Violation {
        at: ms(9),
        oracle: "http.one_outcome",
        why: NASTY.to_owned(),
    };
    let record = Record {
        hash: "abc".to_owned(),
        events: detail.events.len() as u64,
        lines: Vec::new(),
        oracles: 1,
        violation: Some(violation),
        marks: BTreeMap::new(),
        requests: 1,
        by_op: std::collections::BTreeMap::new(),
        simulated: ms(20),
        detail: Some(Box::new(detail)),
    };
    let run = RunResult {
        scenario: "x".to_owned(),
        seed: 3,
        options: Vec::new(),
        plan: crate::plan::Plan {
            faults: plan,
            ..Default::default()
        },
        fates: Vec::new(),
        record,
        live_after: None,
        wall: Duration::ZERO,
    };
    Explanation {
        run,
        needs: Vec::new(),
        parts: None,
    }
}

/// The element that holds the data, read as a browser would: up to the first end of a script.
fn embedded(page: &str) -> Value {
    let open = "<script type=\"application/json\" id=\"data\">";
    let begin = page.find(open).expect("the data's element") + open.len();
    let end = begin + page[begin..].find("</script").expect("its end");
    serde_json::from_str(&page[begin..end]).expect("whole and valid")
}

#[test]
fn every_event_is_in_the_page_and_no_text_breaks_out_of_it() {
    let page = html(&explanation(), NASTY);
    let data = embedded(&page);
    for column in ["t", "n", "k", "x"] {
        assert_eq!(
            data["events"][column].as_array().map(Vec::len),
            Some(9),
            "{column}"
        );
    }
    assert_eq!(data["events"]["x"][8], NASTY);
    assert_eq!(data["events"]["t"][2], 2000.0);
    assert_eq!(data["nodes"][0], NASTY);
    assert_eq!(data["replay"], NASTY);
    assert_eq!(data["verdict"]["why"], NASTY);
    assert_eq!(
        page.matches("<script").count(),
        2,
        "the data and the page's own"
    );
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("<!--"), "a comment would swallow the end");
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    let page = html(&explanation(), "");
    for word in ["http://", "https://", "src=", "@import", "url(", "fetch("] {
        assert!(!page.contains(word), "{word}");
    }
    for left in ["/*STYLE*/", "/*SCRIPT*/", "/*DATA*/"] {
        assert!(!page.contains(left), "{left}");
    }
}

#[test]
fn a_fault_lasts_until_it_heals_or_else_as_long_as_it_was_planned() {
    let data = data(&explanation(), "");
    let spans: Vec<_> = (data["faults"].as_array().expect("bands").iter())
        .map(|f| (f["t"].as_f64(), f["e"].as_f64()))
        .collect();
    assert_eq!(
        spans,
        [(Some(3000.0), Some(33_000.0)), (Some(4000.0), Some(8000.0))]
    );
}

#[test]
fn a_request_knows_both_ends_and_its_outcome() {
    let data = data(&explanation(), "");
    let request = &data["requests"][0];
    assert_eq!(
        (&request["n"], &request["to"]),
        (&Value::from(1), &Value::from(0))
    );
    assert_eq!(
        (&request["t"], &request["e"]),
        (&Value::from(2000.0), &Value::from(9000.0))
    );
    assert_eq!(request["outcome"], "unknown");
}

#[test]
fn strips_tell_readiness_depth_and_when_there_was_no_process() {
    let data = data(&explanation(), "");
    assert_eq!(data["ready"][0][2], true);
    assert_eq!(data["ready"][1][2], false);
    assert_eq!(
        data["depths"][0]["points"],
        serde_json::json!([[3000.0, 3]])
    );
    assert_eq!(data["down"], serde_json::json!([[0, 10_000.0, 20_000.0]]));
    assert_eq!(data["messages"][0][3], -1.0, "held back: it never arrived");
}

#[test]
fn the_perfetto_trace_has_the_fields_that_each_phase_needs() {
    let trace = crate::perfetto::trace(&explanation().run);
    let text = trace.to_string();
    let read: Value = serde_json::from_str(&text).expect("valid JSON");
    let events = read["traceEvents"].as_array().expect("a list");
    let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).collect::<Vec<_>>();
    for event in events {
        assert!(
            event["pid"].is_u64() && event["name"].is_string(),
            "{event}"
        );
        let ph = event["ph"].as_str().expect("a phase");
        assert!(ph == "M" || event["ts"].is_number(), "{event}");
        match ph {
            "X" => assert!(event["dur"].as_f64() > Some(0.0), "{event}"),
            "i" => assert!(event["s"].is_string(), "{event}"),
            "b" | "e" => assert!(event["id"].is_u64() && event["cat"].is_string(), "{event}"),
            "C" => assert!(event["args"].is_object(), "{event}"),
            _ => {}
        }
    }
    assert_eq!(of("b").len(), of("e").len());
    assert_eq!(of("X").len(), 2, "faults; the message never arrived");
    // All but the request and its outcome, and the verdict.
    assert_eq!(of("i").len(), 9 - 2 + 1);
    assert_eq!(of("C").len(), 2);
}
