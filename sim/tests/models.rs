//! The commands that check and explore models, as a person uses them.
#![allow(
    clippy::disallowed_methods,
    reason = "it starts the command and talks to it over a real socket"
)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

fn sim() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sim"))
}

#[test]
fn checking_tells_states_depth_and_properties_of_each_model() {
    let out = sim()
        .args(["models", "queue.reject", "queue.drop"])
        .output();
    let out = out.expect("it starts");
    let told = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{told}");
    let rows: Vec<Vec<&str>> = told
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["model", "states", "depth", "holds", "time"]);
    for (row, name) in rows[1..3].iter().zip(["queue.reject", "queue.drop"]) {
        assert_eq!((row[0], row[3], row[6]), (name, "6/6", "holds"));
        assert!(row[1].parse::<u64>().expect("states") > 500, "{row:?}");
    }
    assert_eq!(told.lines().last(), Some("2 models, 0 violated"));
}

#[test]
fn wrong_words_get_one_line_that_says_what_there_is() {
    for (args, says) in [
        (
            &["models", "nope"][..],
            "there are: lifecycle, queue.reject",
        ),
        (&["explore"], "explore takes one model"),
        (&["explore", "nope"], "no model \"nope\""),
        (
            &["explore", "lifecycle", "--port", "70000"],
            "takes 0 to 65535",
        ),
        (&["models", "--port", "1"], "no option \"--port\""),
    ] {
        let out = sim().args(args).output().expect("it starts");
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(
            error.contains(says) && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn exploring_serves_the_model_on_this_machine_only() {
    let mut command = sim();
    command.args(["explore", "queue.reject", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let told = BufReader::new(child.stdout.take().expect("its words")).lines();
    let open = told
        .map_while(Result::ok)
        .find(|line| line.starts_with("open "));
    let open = open.expect("the address");
    let addr = open
        .trim_start_matches("open http://")
        .split('/')
        .next()
        .expect("an address")
        .to_owned();
    assert!(addr.starts_with("127.0.0.1:"), "{addr}");
    // The line comes before the server is up.
    let status = (0..200).find_map(|_| {
        let answer = get(&addr, "/.status");
        if answer.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        answer
    });
    let page = get(&addr, "/");
    child.kill().expect("it is there to be ended");
    child.wait().expect("and ends");
    let status = status.expect("the explorer answers");
    assert!(
        status.contains("WorkQueue") && status.contains("no loss"),
        "{status}"
    );
    assert!(page.expect("its page").to_lowercase().contains("<html"));
}

fn get(addr: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}
